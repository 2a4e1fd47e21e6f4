# SPDX-License-Identifier: BSD-3-Clause
"""The certificate bundle and openssl's way to it.

conda-forge's openssl has its prefix compiled in; Debian's looks into ``/usr/lib/ssl``. The activation names the
environment's bundle instead, unless the user has named one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.activation import Setting, write_activation
from channel_tools.foundation.repairs.layout import step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_BUNDLE = "ssl/cacert.pem"
_LEAST_CERTIFICATES = 50
_BEGIN = "-----BEGIN CERTIFICATE-----"


def bundle_certificates(tree: Path, context: RepairContext) -> None:
    """Join Mozilla's certificates into ``ssl/cacert.pem``, with the link ``ssl/cert.pem`` that openssl looks for."""
    sources = sorted((tree / "share" / "ca-certificates").rglob("*.crt"))
    texts = [path.read_text().strip() for path in sources]
    if len(texts) < _LEAST_CERTIFICATES or not all(text.startswith(_BEGIN) for text in texts):
        raise step_error(context, f"expected at least {_LEAST_CERTIFICATES} PEM certificates, found {len(texts)} files")
    bundle = tree / _BUNDLE
    bundle.parent.mkdir()
    bundle.write_text("\n".join(texts) + "\n")
    (bundle.parent / "cert.pem").symlink_to(bundle.name)


def activate_certificates(tree: Path, context: RepairContext) -> None:
    """Have the activation point openssl at the environment's certificates (``SSL_CERT_FILE``, ``SSL_CERT_DIR``)."""
    setting = Setting(
        name="SSL_CERT_FILE", value=f"$CONDA_PREFIX/{_BUNDLE}", only_if_unset=("SSL_CERT_FILE", "SSL_CERT_DIR")
    )
    what = "This environment's certificates; openssl has another folder compiled in."
    write_activation(tree, context.entry.name, [setting], what=what)


STEPS: dict[str, Repair] = {
    "bundle_certificates": bundle_certificates,
    "activate_certificates": activate_certificates,
}
