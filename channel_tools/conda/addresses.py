# SPDX-License-Identifier: BSD-3-Clause
"""Parses and checks addresses of channels and packages, and removes credentials from them.

No other module takes such an address apart. One of the web is compared in its normal form only (``normal_address``):
records have the addresses that rattler made of it, in which the host's case, a default port and ``..`` are gone.

Three places in an address can contain a secret: the user information before the host, a ``/t/TOKEN`` in the path
(conda's own form) and a query (signed addresses of object stores). None of them is ever written, logged or shown.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urljoin, urlsplit, urlunsplit

from channel_tools.system.errors import IntegrityError, UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.settings import user_path

NOT_SENT = "stored credentials (.netrc, rattler's) are not sent to http addresses of other machines: use https"
_UNREADABLE = "(an address that cannot be read)"
_TOKEN = re.compile(r"/t/([^/]+)(?=/|$)")
_SECRET_KEY = re.compile(r"(?i)(?:.*[-_])?(?:token|signature|sig|credential|password|passwd|secret|api_?key|key|auth)")
_IN_TEXT = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"`()<>,]+")
_QUOTATION_MARK = re.compile("[\"'`]")
_WEB_SCHEMES = {"http": 80, "https": 443}
"""With their default ports."""
_LOCAL_SCHEMES = frozenset({"", "file"})
_CHANNEL_SCHEMES = frozenset({"file", "http", "https", "s3", "gcs", "oci"})
"""The schemes that rattler can read channels from."""
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_AS_IS = "/%:@!$&'()*+,;=~"
"""Characters of paths that rattler does not write as %XX in addresses; letters, digits and ``_.-~`` neither."""
_MAY_BE_SECRET = re.compile(r"[@?]|/t/")
_NEARLY_WEB = re.compile(r"\s*(?:[\w.-]+\+)?https?\s*(?::(?!//)|://+(?=/)|\s+:|//)|\s*:?//", re.IGNORECASE)
"""The beginning of a text that was meant as an address of the web, and is none."""
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")
_FORMS = "https://HOST/CHANNEL, file:///FOLDER or a folder"


def parse_address(address: str, *, forms: str = _FORMS) -> SplitResult:
    """Parse an address with ``://``; ``forms`` describes the valid forms for the error message.

    Raises UsageError for one that cannot be used: without a host, or without a folder for ``file://``, with a port that
    is not valid, with blanks or control characters (which ``urlsplit`` would silently drop).
    """
    try:
        parts = urlsplit(address)
        problem = _problem(address, parts)
    except ValueError as err:
        # it quotes the port, which is a part of a password with a slash in it
        problem = "its host or port is not valid" if _has_user_with_slash(address) else str(err)
    if problem:
        text = without_credentials(address) if _MAY_BE_SECRET.search(address) else address
        raise UsageError(f"{text!r}: {problem}; expected {forms}")
    return parts


def _problem(address: str, parts: SplitResult) -> str | None:
    """What is wrong with an address, None if nothing. Raises ValueError for a host or port that is not valid."""
    if _UNPRINTABLE.search(address):
        return "it has blanks or characters that cannot be printed; write them as %20"
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            return f"a folder of this machine has no host, found {parts.netloc.rpartition('@')[2]!r}"
        return "it names no folder" if not parts.path or "\0" in unquote(parts.path) else None
    if not parts.hostname:
        return "it names no host"
    parts.hostname.encode("idna")
    return "its port is 0" if parts.port == 0 else None


def scheme_of(text: str) -> str:
    """What stands before ``://``, in lower case, whether or not it can be a scheme; empty for a path or a name.

    >>> scheme_of("S3://bucket/channel"), scheme_of("/srv/channel")
    ('s3', '')
    """
    scheme, separator, _path = text.partition("://")
    return scheme.lower() if separator else ""


def is_web(address: str) -> bool:
    """Whether an address is one of http or https."""
    return scheme_of(address) in _WEB_SCHEMES


def host_of(address: str) -> str:
    """The host that an address names, as clients ask for it: lower case, ASCII, an IPv6 address in brackets.

    Empty if it names none. Raises UsageError for an address that cannot be used.

    >>> host_of("https://user@Conda.Example:8443/x")
    'conda.example'
    >>> host_of("http://[::1]:8000/x")
    '[::1]'
    """
    host = parse_address(address).hostname or ""
    return f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")


def is_confidential(url: str) -> bool:
    """Whether nobody on the way can read what is sent to an address: https, or a host that is this machine."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    if parts.scheme == "https" or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_downgraded(address: str, place: str) -> bool:
    """Whether an https address leads to a place where everybody on the way could read what is sent."""
    return scheme_of(address) == "https" and scheme_of(place) == "http" and not is_confidential(place)


def path_of(address: str) -> str:
    """The path in an address, as it is written there."""
    return urlsplit(address).path


def normal_address(address: str) -> str:
    """An address of http or https in the form in which it is requested (RFC 3986, 6.2), others unchanged.

    The host is as host_of gives it, a default port is left out; in the path, characters that need it are written as
    %XX, and ``.`` and ``..`` are resolved. Raises UsageError for an address that cannot be used.

    >>> normal_address("HTTPS://Example.org:443/a/../ü")
    'https://example.org/%C3%BC'
    """
    if not is_web(address):
        return address
    from urllib3.util import parse_url  # noqa: PLC0415 - a tenth of a second for commands without a network

    parts = parse_address(address)
    user, at, _host = parts.netloc.rpartition("@")
    port = "" if parts.port in {None, _WEB_SCHEMES[parts.scheme]} else f":{parts.port}"
    netloc = f"{user}{at}{host_of(address)}{port}"
    return parse_url(urlunsplit((parts.scheme, netloc, parts.path, parts.query, parts.fragment))).url


def split_credentials(address: str) -> tuple[str, str | None, tuple[str, str] | None]:
    """A web address in its normal form without user and token, the token, and the user's name and password.

    Raises UsageError for an address that cannot be used.

    >>> split_credentials("https://me:pw@example.org/t/abc/ours")
    ('https://example.org/ours', 'abc', ('me', 'pw'))
    """
    parts = urlsplit(normal_address(address))
    token = _TOKEN.search(parts.path)
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=_TOKEN.sub("", parts.path, count=1))
    user = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return urlunsplit(plain._replace(fragment="")), None if token is None else unquote(token[1]), user


def with_token(address: str, token: str) -> str:
    """A web address with a token in front of its path, as conda and rattler send it.

    >>> with_token("https://example.org/ours", "abc")
    'https://example.org/t/abc/ours'
    """
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=f"/t/{token}{parts.path}"))


def without_user(address: str) -> str:
    """A web address in its normal form without user and fragment, but with its token."""
    parts = urlsplit(normal_address(address))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def channel_address(channel: str) -> str:
    """The address of a channel, without a slash at its end; that of the web in its normal form.

    The text is an address (with ``://``) or a folder (with a slash, or one that exists). Raises UsageError for anything
    else, such as a name, which only a user's settings give an address (``user_settings``), and for an address with a
    query, which clients would drop.

    >>> channel_address("https://Example.org/ours/")
    'https://example.org/ours'
    """
    if scheme := scheme_of(channel):
        parts = parse_address(channel)
        if scheme not in _CHANNEL_SCHEMES:
            message = (
                f"{without_credentials(channel)}: channels cannot be read from addresses that start with {scheme}://"
            )
            raise UsageError(message, hint=f"write {_FORMS}")
        if parts.query or parts.fragment:
            message = f"{without_credentials(channel)}: given with a query (?) or fragment (#), which clients drop"
            raise UsageError(message, hint=f"write {_FORMS}; in a path, ? is %3F and # is %23")
        folder = local_path(channel)
        return normal_address(parts.geturl()).rstrip("/") if folder is None else _folder_address(folder)
    folder = user_path(channel)
    if is_misspelled(channel) and not folder.is_dir():
        raise UsageError(f"{without_credentials(channel)!r}: not an address", hint=f"write {_FORMS}")
    if "/" in channel or (channel and folder.is_dir()):
        return _folder_address(folder)
    form = "an address" if _CHANNEL_NAME.fullmatch(channel) else "a channel's name"
    raise UsageError(f"{channel!r}: not {form} or an existing folder", hint=f"write {_FORMS}")


def is_misspelled(text: str) -> bool:
    """Whether a text was meant as an address of the web but is none, so that it would be taken for a path.

    >>> is_misspelled("https:/me:secret@example.org/ours"), is_misspelled("https://example.org/ours")
    (True, False)
    """
    return _NEARLY_WEB.match(text) is not None and not text.startswith("/")


def _has_user_with_slash(address: str) -> bool:
    """Whether a password has a slash, which ends the host, so that its beginning is taken for a port."""
    host, _slash, path = address.partition("://")[2].partition("/")
    port = host.rpartition(":")[2] if ":" in host else ""
    return "@" in path and "@" not in host and not host.startswith("[") and port != "" and not port.isdecimal()


def is_channel_name(channel: str) -> bool:
    """Whether this can only be a channel's name: neither an address nor a folder."""
    return _CHANNEL_NAME.fullmatch(channel) is not None and not user_path(channel).is_dir()


def file_address(path: str) -> str:
    """The address of an absolute path, with the characters as %XX that rattler writes so in addresses.

    >>> file_address("/srv/my channel")
    'file:///srv/my%20channel'
    """
    return f"file://{quote(path, safe=_AS_IS.replace('%', ''))}"


def _folder_address(folder: Path) -> str:
    """The address of a folder. Clients resolve ``..`` in it as text, so what it means to the system is said here.

    Raises UsageError for a path that is no UTF-8, of which conda's clients read no channel.
    """
    path = absolute_path(folder)
    if not is_utf8(path):
        shown = str(path).encode(errors="backslashreplace").decode()
        message = f"{shown}: not UTF-8, and conda's clients read no channel from such a path"
        raise UsageError(message, hint="rename the folder, or give a link to it whose own path is UTF-8")
    return path.as_uri()


def is_utf8(path: Path) -> bool:
    """Whether a path's bytes are UTF-8: Linux takes any."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def channel_name(address: str) -> str:
    """The last part of an address's path, decoded, else its host; empty if it has neither.

    Credentials, a query and slashes at the end do not matter. Raises UsageError for an address that cannot be used.

    >>> channel_name("https://example.org/t/abc/ours/"), channel_name("https://example.org")
    ('ours', 'example.org')
    """
    plain = without_credentials(normal_address(address))
    return last_part(plain) or urlsplit(plain).hostname or ""


def without_credentials(address: str) -> str:
    """``address`` without user information, token, query and fragment; local addresses have none and are unchanged.

    Nothing is shown of an address that cannot be parsed or is misspelled, since its secrets cannot be located.

    >>> without_credentials("https://me:pw@example.org/t/abc/ours")
    'https://example.org/ours'
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return _UNREADABLE
    if _has_user_with_slash(address) or (is_misspelled(address) and _MAY_BE_SECRET.search(address)):
        return _UNREADABLE
    if parts.scheme in _LOCAL_SCHEMES:
        return address if "@" not in parts.netloc else _UNREADABLE
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], _TOKEN.sub("", parts.path), "", ""))


def with_credentials_of(channel: str, url: str) -> str:
    """``url`` with the credentials in the address ``channel`` if it is below that channel; others do not get them.

    >>> with_credentials_of("https://me:pw@example.org/ours", "https://example.org/ours/noarch/a.conda")
    'https://me:pw@example.org/ours/noarch/a.conda'
    >>> with_credentials_of("https://me:pw@example.org/ours", "https://elsewhere.org/a.conda")
    'https://elsewhere.org/a.conda'
    """
    plain = without_credentials(channel).rstrip("/")
    return channel.rstrip("/") + url.removeprefix(plain) if url.startswith(f"{plain}/") else url


def has_credentials(address: str) -> bool:
    """Whether ``address`` has anything that without_credentials removes."""
    return without_credentials(address) != address


def has_secret(address: str) -> bool:
    """Whether an address of a source or of a git repository has a secret in it, which whoever reads it would have.

    That is a password or, on the web, a user, which is often a token; ``/t/TOKEN`` at the beginning of the path; and a
    query with the name of a token, key or signature. The user of ssh and any other query belong to the address.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return "@" in address
    if _has_user_with_slash(address) or (is_misspelled(address) and _MAY_BE_SECRET.search(address)):
        return True
    if parts.password is not None or (parts.username is not None and parts.scheme.removeprefix("git+") in _WEB_SCHEMES):
        return True
    return _TOKEN.match(parts.path) is not None or any(
        _SECRET_KEY.fullmatch(name) for name, _value in parse_qsl(parts.query, keep_blank_values=True)
    )


def split_revision(text: str) -> tuple[str, str]:
    """``ADDRESS@REV`` of a git repository as its address and the revision, which may have slashes, too.

    An @ before the address's path belongs to the address. Either is empty if there is no revision.
    """
    head, path = "", text
    if "://" in text:
        scheme, _, rest = text.partition("://")
        host, slash, path = rest.partition("/")
        head = f"{scheme}://{host}{slash}"
    elif ":" in text:  # user@host:path
        host, colon, path = text.partition(":")
        head = host + colon
    address, _, rev = path.rpartition("@")
    return (head + address if address else ""), rev


def shown_address(address: str) -> str:
    """An address of a source or repository for a message: as it is, unless it has a secret."""
    return without_credentials(address) if has_secret(address) else address


def text_without_credentials(text: str) -> str:
    """The text of a program or library, with the credentials of every address in it taken out."""
    return _IN_TEXT.sub(lambda match: without_credentials(match.group()), text)


def without_quoted(message: str) -> str:
    """What a library says of a file that may have secrets, without what it quotes of it; what it expected there stays.

    >>> without_quoted('invalid type: string "secret", expected a sequence')
    'invalid type: string, expected a sequence'
    >>> without_quoted("duplicate key `secret` in document root")
    'duplicate key'
    """
    before, comma, expected = message.rpartition(", expected ")
    if not comma:
        before, expected = message, ""
    return _QUOTATION_MARK.split(before, maxsplit=1)[0].rstrip() + comma + expected


def local_path(address: str) -> Path | None:
    """The file or folder that a ``file://`` address names, None for any other address."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def packages_address(channel: str, subdir: str, base_url: str | None) -> str:
    """The address of the folder with a subdir's packages, with a slash at its end, from the index's ``base_url``.

    ``base_url`` (CEP 15; also in the index of shards, CEP 16) is absolute, or relative to the subdir's address, and
    read as rattler reads it in repodata.json: a path that starts with a slash is one of the same host, and a query is
    dropped. Credentials in the address ``channel`` belong to it and what is below it, so an address elsewhere does not
    get them. Raises IntegrityError for one that cannot be used, among them a folder of this machine named by an index
    from elsewhere.

    >>> packages_address("https://example.org/ours", "noarch", "../files")
    'https://example.org/ours/files/'
    """
    address = channel.rstrip("/")
    plain = without_credentials(address).rstrip("/")
    try:
        parts = urlsplit(_joined(f"{plain}/{subdir}/", base_url or ""))
        folder = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/"
        parse_address(folder)
    except (ValueError, UsageError) as err:
        raise _unusable_base(plain, subdir, base_url, str(err).partition("; expected")[0]) from None
    if local_path(folder) is not None and local_path(plain) is None:
        raise _unusable_base(plain, subdir, base_url, "a channel elsewhere cannot have packages in folders here")
    return with_credentials_of(address, folder)


def _joined(subdir_address: str, base_url: str) -> str:
    if "://" in base_url:
        return base_url
    parts, path = urlsplit(subdir_address), quote(base_url.partition("?")[0], safe=_AS_IS)
    if not path.startswith("/"):
        # the host does not matter for a path, and urljoin knows only some schemes
        path = urlsplit(urljoin(f"http://host{parts.path}", f"./{path}")).path
    elif parts.scheme == "file":
        path = "/" + path.lstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _unusable_base(plain: str, subdir: str, base_url: str | None, reason: str) -> IntegrityError:
    base = without_credentials(base_url or "")
    message = f"{plain}/{subdir}: its index gives {base!r} as base_url: {reason}"
    return IntegrityError(
        message, hint="correct base_url in the channel's index; expected an address or a path (CEP 15)"
    )


def split_last(address: str) -> tuple[str, str]:
    """An address up to the last slash of its path, and what stands after it, decoded.

    The query and the fragment stay with the first. A slash that was written as %2F stays in the second.

    >>> split_last("https://example.org/a/b%20c?x=1")
    ('https://example.org/a?x=1', 'b c')
    """
    parts = urlsplit(address)
    folder, _slash, last = parts.path.rpartition("/")
    return urlunsplit(parts._replace(path=folder)), unquote(last)


def file_name_of(address: str) -> str:
    """What stands after the last slash of an address's path, decoded; with a slash in it, it is no file name."""
    return split_last(address)[1]


def last_part(address: str) -> str:
    """The last part of an address's path, decoded; slashes at the end do not matter. Empty if there is none."""
    return unquote(urlsplit(address).path.rstrip("/").rpartition("/")[2])
