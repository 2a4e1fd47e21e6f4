# SPDX-License-Identifier: BSD-3-Clause
"""What the commands of ``env`` are asked for; which stack ``pins``, ``validate`` and others mean.

What ``env image`` and ``export paper`` are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.attest import TrustRequest
from channel_tools.requests.names import FormatName
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.pins.choice import LockChoice


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallRequest:
    """A stack (None: the default one) and the channels it comes from (empty: the local channel and its foundation).

    ``python`` and ``pytorch`` choose one of its variants by their versions. With neither, the local channel gives the
    default variant, and for other channels the solver chooses.
    """

    stack: options.Stack = None
    python: options.Python = None
    pytorch: options.Pytorch = None
    channels: Annotated[
        tuple[str, ...],
        options.channels_option(
            "Install from this address, folder or name (`config` shows whose); may be repeated.", "the local channel"
        ),
    ] = ()

    @property
    def names_a_variant(self) -> bool:
        """Whether the stack, the Python or the PyTorch is given."""
        return self.stack is not None or self.python is not None or self.pytorch is not None


_Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask on a terminal.")]
_RequireAttestation = Annotated[
    bool, Option("--require-attestation", help="Install only packages signed by a trusted key or identity.")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRequest:
    """What to install into ``prefix``: a stack, what MatchSpecs ask for, or a lock (an environment.yml is solved).

    ``install.channels`` replace those of a lock.

    Raises UsageError for options that contradict each other.
    """

    prefix: Annotated[Path, Argument(help="The folder of the new environment.")]
    specs: Annotated[
        tuple[str, ...],
        Argument(metavar="[SPEC]...", help="Install what these MatchSpecs ask for, instead of a stack."),
    ] = ()
    install: InstallRequest = field(default_factory=InstallRequest)
    lock: Annotated[
        Path | None,
        Option(
            "--lock",
            help="Install exactly the packages of this conda-lock.yml, explicit list or pixi.lock, or what the specs "
            "of this environment.yml are solved to; --channel then replaces its channels.",
            show_default=False,
        ),
    ] = None
    platform: Annotated[
        str | None,
        Option("--platform", help="The platform of the lock, by a pixi.lock's own name.", show_default="this one's"),
    ] = None
    categories: options.Categories = ()
    environment: options.LockEnvironment = None
    virtual_packages: options.VirtualPackages = ()
    require_attestation: _RequireAttestation = False
    trust: TrustRequest = field(default_factory=TrustRequest)
    modulefiles: Annotated[
        tuple[Path, ...],
        Option(
            "--modulefile",
            metavar="FILE",
            help="Also write a module file: for Lmod (FILE.lua), else in Tcl; may be repeated.",
            show_default=False,
        ),
    ] = ()
    replace: Annotated[
        bool,
        Option(
            "--replace",
            help="Put the new environment in the place of the one at PREFIX: list its packages that go, and ask. Files "
            "that are of no package stay.",
        ),
    ] = False
    yes: Annotated[bool, Option("--yes", "-y", help="With --replace: do not ask.")] = False

    def __post_init__(self) -> None:
        if self.yes and not self.replace:
            raise UsageError("--yes without --replace: nothing is asked", hint="leave it out, or give both")
        if self.specs and (self.install.names_a_variant or self.lock is not None):
            message = "MatchSpecs with --variant, --python, --pytorch or --lock: only one of these says what to install"
            raise UsageError(message, hint="name Python and PyTorch among the MatchSpecs: 'python 3.13.*'")
        if self.platform is not None and self.lock is None:
            raise UsageError("--platform without --lock: a stack is installed for this machine", hint="leave it out")
        if self.lock is not None and self.install.names_a_variant:
            message = "--variant, --python or --pytorch with --lock: a lock already determines them"
            raise UsageError(message, hint="give the lock alone")
        _check_trust(self.trust, is_required=self.require_attestation)
        self.choice  # noqa: B018 - for its errors

    @property
    def choice(self) -> LockChoice:
        """The part of the lock that is meant. Raises UsageError as lock_choice does."""
        from channel_tools.pins.choice import lock_choice

        platforms = [] if self.platform is None else [self.platform]
        return lock_choice(platforms, self.categories, self.environment, has_lock=self.lock is not None)

    @property
    def needs_stacks(self) -> bool:
        """Whether it is a stack that is installed."""
        return not self.specs and self.lock is None


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRequest:
    """An environment to bring to the newest packages that what it was asked for allows.

    Raises UsageError for trust options that have no effect.
    """

    prefix: Annotated[Path, Argument(help="The environment.")]
    channels: Annotated[
        tuple[str, ...],
        options.channels_option(
            "Install from this address, folder or name (`config` shows whose); may be repeated.",
            "those of the environment's packages",
        ),
    ] = ()
    virtual_packages: options.VirtualPackages = ()
    require_attestation: _RequireAttestation = False
    trust: TrustRequest = field(default_factory=TrustRequest)
    dry_run: options.DryRun = False
    yes: _Yes = False

    def __post_init__(self) -> None:
        _check_trust(self.trust, is_required=self.require_attestation)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveRequest:
    """Packages to remove from an environment. Raises UsageError without any."""

    prefix: Annotated[Path, Argument(help="The environment.")]
    specs: Annotated[
        tuple[str, ...], Argument(metavar="SPEC...", help="Remove the packages that these MatchSpecs name.")
    ]
    dry_run: options.DryRun = False
    yes: _Yes = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportRequest:
    """An installed environment, and the files to write of it: to ``folder``, else the one of its format to stdout.

    Raises UsageError for several files without a folder.
    """

    prefix: Annotated[Path, Argument(help="The environment.")]
    formats: Annotated[
        tuple[FormatName, ...],
        Option("--format", "-f", help="The format; with -o also several, or all.", show_default="environment"),
    ] = ()
    folder: Annotated[
        Path | None, Option("-o", help="The folder for the files; conda-lock.yml is among them.", show_default="stdout")
    ] = None
    from_history: Annotated[
        bool, Option("--from-history", help="An environment.yml of what was asked for, to be solved elsewhere.")
    ] = False

    def __post_init__(self) -> None:
        if self.from_history and (self.formats not in {(), (FormatName.ENVIRONMENT,)} or self.folder is not None):
            message = "--from-history with another format or -o: what was asked for is an environment.yml on stdout"
            raise UsageError(message, hint="leave one of the two out")
        if self.folder is None and (len(self.formats) > 1 or {FormatName.ALL, FormatName.PIXI} & {*self.formats}):
            raise UsageError("several files on standard output: pixi has two", hint="give their folder: -o FOLDER")


@dataclass(frozen=True, kw_only=True, slots=True)
class AddRequest(UpdateRequest):
    """What to add to an environment: what MatchSpecs ask for, or a stack, which comes from the channels of create.

    Raises UsageError for neither and for both.
    """

    specs: Annotated[
        tuple[str, ...], Argument(metavar="[SPEC]...", help="Add what these MatchSpecs ask for, or a stack.")
    ] = ()
    stack: Annotated[str | None, options.stack_option("none")] = None
    python: Annotated[
        str | None, Option("--python", help="The stack for this Python.", show_default="the environment's if possible")
    ] = None
    pytorch: Annotated[
        str | None,
        Option("--pytorch", help="The stack for this PyTorch.", show_default="the environment's if possible"),
    ] = None
    force_reinstall: Annotated[
        bool,
        Option("--force-reinstall", help="Link the packages that SPEC names again: something has changed their files."),
    ] = False

    def __post_init__(self) -> None:
        if self.force_reinstall and not self.specs:
            message = "--force-reinstall without a MatchSpec: nothing says which packages"
            raise UsageError(message, hint="name those that doctor names: env add PREFIX pytorch --force-reinstall")
        UpdateRequest.__post_init__(self)
        if self.specs and self.install.names_a_variant:
            message = "MatchSpecs with --variant, --python or --pytorch: only one of these says what to add"
            raise UsageError(message, hint="name Python and PyTorch among the MatchSpecs: 'python 3.13.*'")
        if not self.specs and self.stack is None:
            message = "nothing to add: neither a MatchSpec nor --variant is given"
            raise UsageError(message, hint="name a package; for newer versions of what is there: env update")

    @property
    def install(self) -> InstallRequest:
        """The stack, and where it comes from."""
        return InstallRequest(stack=self.stack, channels=self.channels, python=self.python, pytorch=self.pytorch)


def _check_trust(trust: TrustRequest, *, is_required: bool) -> None:
    if trust.names_someone and not is_required:
        message = "trust options without --require-attestation: nothing would be checked"
        raise UsageError(message, hint="give both")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRequest:
    """The environment, or the stack, to write as an image. Raises UsageError for neither and for both."""

    prefix: Annotated[Path | None, Argument(help="The environment.", show_default="a stack's, by --variant")] = None
    install: InstallRequest = field(default_factory=InstallRequest)
    file: Annotated[Path, Option("-o", metavar="FILE", help="The file to write: NAME.squashfs.")]
    at: Annotated[Path, Option("--at", metavar="FOLDER", help="The folder that it will be mounted at.")] = Path(
        "/user-environment"
    )
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False
    without_attestations: Annotated[
        bool, Option("--without-attestations", help="Leave out what the channels have of the packages' attestations.")
    ] = False

    def __post_init__(self) -> None:
        if (self.prefix is None) == (self.install.stack is None):
            message = "an environment and --variant: both say what is in the image"
            if self.prefix is None:
                message = "neither an environment nor --variant: nothing says what is in the image"
            raise UsageError(message, hint="give one of the two")
        if self.prefix is not None and (self.install.names_a_variant or self.install.channels):
            raise UsageError("--channel, --python or --pytorch with an environment: it has them", hint="leave them out")


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperRequest:
    """The environment to describe in a folder, so that it can be made again."""

    prefix: Annotated[Path, Argument(help="The environment.")]
    folder: Annotated[Path, Option("-o", metavar="FOLDER", help="The folder for the files.")]
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="Also this report of validate.", show_default=False)
    ] = None
