# SPDX-License-Identifier: BSD-3-Clause
"""How each page is rendered, and the pages of builds and packages; those of the whole channel are in front.py.

A file's digest covers all that it shows and the code that renders it, so a page is rendered, and its package opened,
only if the result would differ. The smallest parts of pages, dozens on each, are made by filters: a template's macro
takes several times as long. All texts are escaped as a template would.

What is only in a package's file (files, sources, patches with reasons) and its attestations is read for the page of its
build. Values of an unexpected shape are left out: anybody may have written the recipe in a package. Claims are shown so
that people can check them; no signature is verified here.
"""

from __future__ import annotations

import binascii
import hashlib
import logging
import posixpath
import re
import shlex
from base64 import b64decode
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

import msgspec
import yaml
from markupsafe import Markup

from channel_tools import __version__
from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.archive import read_info_files
from channel_tools.conda.contents import parsed_json
from channel_tools.conda.specs import name_or_none, texts_of
from channel_tools.page.content import (
    builds_before,
    changes_since,
    field_lines,
    machine_needs,
    texts,
    variant_table,
    web_link,
)
from channel_tools.page.model import (
    INDEX_PAGE,
    PAGE_FOLDER,
    name_page,
    stack_page,
    validated_list,
)
from channel_tools.provenance.licenses import spdx_expression
from channel_tools.provenance.statements import PROVENANCE, Bundle, Subject, read_statement
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.pages import day, escaped, page_templates, shared_style, size_in_words
from channel_tools.system.progress import format_amount
from channel_tools.system.settings import STACKS_PACKAGE
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from channel_tools.page.model import Build, Package, PageSettings, PageStore, Site
    from channel_tools.provenance.statements import Statement
    from channel_tools.system.beneath import Beneath

HERE = Path(__file__).parent
_MINUTE, _HOUR = 60, 3600
OWN_MARK = '<meta name="generator" content="channel_tools channel page">'
"""In every page that this program writes, and in no other."""
_START = '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
_TEMPLATES = page_templates(HERE / "templates")
_PAGES = {"index_page": INDEX_PAGE, "list_page": f"{PAGE_FOLDER}/packages-1.html"}
_LINKS = {"home": "Home", "dev_url": "Source", "source_url": "Archive", "doc_url": "Documentation"}
"""Fields of about.json, as a page calls them."""
_SEE_FILES = "see its licence files"
_ADDRESS = "CHANNEL"
_TOOL = "channel_tools"
"""Placeholder for the channel's address if it was not given; JavaScript replaces it with the browser's address."""
_log = logging.getLogger(__name__)
_KEPT = 4096
_HYPHENED = re.compile(r"(?<!\S)(?=--|[\w.]+-)[\w.,:-]{1,28}(?!\S)")
"""An option or a name of at most 28 characters, as many as a phone shows in a line."""
_COMMENT_AFTER = re.compile(r"(?<=\S)[ \t]+(# .*)")
_COMMENT = re.compile(r"^# .*", re.MULTILINE)
SHOWN_FILES = 1000
_PATHS, _RECIPE = "paths.json", "recipe/rendered_recipe.yaml"
_REASON_CHARACTERS = 2000
_PATCH_STARTS = ("---", "diff ", "Index: ", "+++ ")
_SUBJECT = "Subject: "
_BESIDE_SOURCES = ("file:", "source:", "pkg:conda/")
"""Materials that are files of the recipe and packages of its environments."""
_SHOWN_SOURCES = 20
_HEADERS = ("From ", "From: ", "Date: ")


def link(words: str, root: str, path: str) -> Markup:
    """A link to the file ``path`` of the channel."""
    return Markup(f'<a href="{root}{quote(path)}">{escaped(words)}</a>')  # noqa: S704 - all of it is quoted or escaped


@lru_cache(maxsize=_KEPT)
def chip(words: str, kind: str = "") -> Markup:
    """A word or two in a border; ``kind`` (good, bad, warn, accent) decides its colour."""
    return Markup(f'<span class="chip{" " if kind else ""}{kind}">{escaped(words)}</span>')  # noqa: S704 - kinds are ours


def chips(labels: Iterable[tuple[str, str]]) -> Markup:
    """Chips, each with a space before it."""
    return Markup("").join(Markup(" ") + chip(words, kind) for words, kind in labels)


def command(text: str) -> Markup:
    """A shell's command, of which a browser breaks no word in two at its hyphens; comments stand back.

    A comment after a command goes to a line of its own, further in, where the line is too short for it.
    """
    shown = _HYPHENED.sub(r"<span>\g<0></span>", str(escaped(text)))
    shown = _COMMENT_AFTER.sub(r' <i class="after">\1</i>', shown)
    return Markup(_COMMENT.sub(r"<i>\g<0></i>", shown))  # noqa: S704 - escaped, and tags


@lru_cache(maxsize=_KEPT)
def need(spec: str, root: str, page: str | None, summary: str) -> Markup:
    """An item of a list of dependencies: the spec, linked to the package's page if there is one, and its summary.

    Kept, since many packages have the same ones.
    """
    named = f"<code>{escaped(spec)}</code>" if page is None else link(spec, root, page)
    description = f' <span class="soft small">{escaped(summary)}</span>' if summary else ""
    return Markup(f"<li>{named}{description}</li>")  # noqa: S704 - all of it is escaped


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePatch:
    """A patch of upstream's source: its file name and the reason in its header (empty if there is none)."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDetails:
    """One source: where it is from, the hash or commit that it is pinned to, and what was changed in it."""

    address: str
    pinned: str
    patches: tuple[SourcePatch, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedFile:
    """A file of a package, or a folder with what is in it; ``size_bytes`` is None if the package does not say it."""

    name: str
    size_bytes: int | None
    entries: tuple[ListedFile, ...] = ()
    file_count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """``files`` are the first SHOWN_FILES of ``file_count`` as a tree; ``unpacked_bytes`` is the size of all."""

    files: tuple[ListedFile, ...]
    file_count: int
    unpacked_bytes: int
    sources: tuple[SourceDetails, ...]

    @property
    def is_cut(self) -> bool:
        """Whether not all files are in ``files``."""
        return self.file_count > SHOWN_FILES


def read_details(path: Path, folder: Beneath | None) -> Details:
    """Read the details from a package file, opened as opened_in does. Raises IntegrityError if it is damaged."""
    info = read_info_files(path, frozenset({_PATHS, _RECIPE}), folder=folder)
    value = parsed_json(info, _PATHS, path) if _PATHS in info else {}
    rows = value.get("paths") if isinstance(value, dict) else None
    files = [
        (row["_path"], size if isinstance(size := row.get("size_in_bytes"), int) else None)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and isinstance(row.get("_path"), str)
    ]
    sources = list(_source_rows(info.get(_RECIPE, b"")))
    wanted = {name: f"recipe/{posixpath.normpath(name)}" for row in sources for name in texts(row.get("patches"))}
    patches = read_info_files(path, frozenset(wanted.values()), folder=folder) if wanted else {}
    return Details(
        files=as_tree(files[:SHOWN_FILES]),
        file_count=len(files),
        unpacked_bytes=sum(size or 0 for _name, size in files),
        sources=tuple(_source(row, wanted, patches) for row in sources),
    )


def _source_rows(recipe: bytes) -> Iterator[dict[str, object]]:
    """The sources of a rendered recipe that have an address, not the local ones beside the recipe."""
    if not recipe:
        return
    try:
        value = load_plain_yaml(recipe)
    except yaml.YAMLError:
        return
    sources = value.get("finalized_sources") if isinstance(value, dict) else None
    for row in sources if isinstance(sources, list) else [sources]:
        if isinstance(row, dict) and (texts(row.get("url")) or texts(row.get("git"))):
            yield row


def _source(row: dict[str, object], wanted: dict[str, str], patches: dict[str, bytes]) -> SourceDetails:
    pins = [f"{key} {row[key]}" for key in ("sha256", "rev", "tag") if isinstance(row.get(key), str)]
    return SourceDetails(
        address=" or ".join([*texts(row.get("url")), *texts(row.get("git"))]),
        pinned=", ".join(pins),
        patches=tuple(
            SourcePatch(name=posixpath.basename(name), reason=patch_reason(patches.get(wanted[name], b"")))
            for name in texts(row.get("patches"))
        ),
    )


def as_tree(files: Sequence[tuple[str, int | None]]) -> tuple[ListedFile, ...]:
    """Paths with sizes as folders and files: folders first, each with the size of what is in it, sorted."""
    folders: dict[str, list[tuple[str, int | None]]] = {}
    leaves = []
    for path, size in files:
        first, slash, below = path.lstrip("/").partition("/")
        if slash and below:
            folders.setdefault(first, []).append((below, size))
        else:
            leaves.append(ListedFile(name=first, size_bytes=size))
    inner = [_folder(name, within) for name, within in folders.items()]
    return (*sorted(inner, key=lambda entry: entry.name), *sorted(leaves, key=lambda entry: entry.name))


def _folder(name: str, within: Sequence[tuple[str, int | None]]) -> ListedFile:
    """A folder, with the one that it only has in it, if so, as one."""
    entries = as_tree(within)
    if len(entries) == 1 and entries[0].entries:
        return replace(entries[0], name=f"{name}/{entries[0].name}")
    total = sum(size or 0 for _path, size in within)
    return ListedFile(name=name, size_bytes=total, entries=entries, file_count=len(within))


def patch_reason(content: bytes) -> str:
    """The text above the first difference of a patch in git's format."""
    lines: list[str] = []
    for line in content[: 4 * _REASON_CHARACTERS].decode(errors="replace").splitlines():
        if line.startswith(_PATCH_STARTS):
            break
        if not line.startswith(_HEADERS):
            lines.append(line.removeprefix(_SUBJECT))
    return "\n".join(lines).strip()[:_REASON_CHARACTERS]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """The ids of the keys that signed, whether Sigstore did, and when the build ended (ISO 8601, "" if not stated).

    ``command`` is what was run, ``tools`` the versions of what ran it, ``sources`` where the sources are from,
    ``materials`` how many things it was made of. ``fault`` says why the attestations prove nothing about the package
    ("" if they are for its bytes).
    """

    keys: tuple[str, ...] = ()
    by_sigstore: bool = False
    finished: str = ""
    command: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    materials: int = 0
    fault: str = ""


def read_claims(content: bytes | None, build: Build) -> Claims:
    """The claims in the file of attestations beside a build; ``content`` is None if that file is missing."""
    if content is None:
        return Claims(fault="its file is missing")
    try:
        bundles = decode_json(content, list[Bundle])
        envelopes = [bundle.dsseEnvelope for bundle in bundles if bundle.dsseEnvelope is not None]
        payloads = [b64decode(envelope.payload, validate=True) for envelope in envelopes]
        statements = [read_statement(payload, where=build.file_name) for payload in payloads]
    except (msgspec.DecodeError, binascii.Error, IntegrityError):
        return Claims(fault="its file has no readable attestations")
    return Claims(
        keys=tuple(
            sorted({signature.keyid for envelope in envelopes for signature in envelope.signatures if signature.keyid})
        ),
        by_sigstore=any(bundle.is_certified for bundle in bundles),
        finished=max(
            (statement.finished.isoformat() for statement in statements if statement.finished is not None), default=""
        ),
        **_claimed_build(payloads),
        fault=_fault(statements, build),
    )


def _claimed_build(payloads: Sequence[bytes]) -> _ClaimedBuild:
    """What the last statement of how the package was built says beside that; of another shape, nothing."""
    claimed = _ClaimedBuild(command="", tools=(), sources=(), materials=0)
    for payload in payloads:
        value = decode_json(payload, dict[str, object])
        if value.get("predicateType") != PROVENANCE:
            continue
        definition = _inner(_inner(value, "predicate"), "buildDefinition")
        parameters = _inner(definition, "externalParameters")
        versions = _inner(_inner(_inner(_inner(value, "predicate"), "runDetails"), "builder"), "version")
        made_of = definition.get("resolvedDependencies")
        uris = [
            str(source["uri"])
            for source in (made_of if isinstance(made_of, list) else [])
            if isinstance(source, dict) and isinstance(source.get("uri"), str)
        ]
        claimed = _ClaimedBuild(
            command=shlex.join(texts(parameters.get("command"))),
            tools=tuple(sorted((name, str(version)) for name, version in versions.items())),
            sources=tuple(uri for uri in uris if not uri.startswith(_BESIDE_SOURCES))[:_SHOWN_SOURCES],
            materials=len(uris),
        )
    return claimed


class _ClaimedBuild(TypedDict):
    """The fields of Claims that show a statement, and prove nothing by themselves."""

    command: str
    tools: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    materials: int


def _inner(value: dict[str, object], key: str) -> dict[str, object]:
    nested = value.get(key)
    return nested if isinstance(nested, dict) else {}


def _fault(statements: list[Statement], build: Build) -> str:
    wanted = Subject(file_name=build.file_name, sha256=build.row.sha256)
    for statement in statements:
        if statement.subject.file_name != wanted.file_name:
            return f"it is for another package, {statement.subject.file_name}"
        if statement.subject != wanted:
            return "it is for different bytes under this name"
    says_how = any(statement.kind == PROVENANCE for statement in statements)
    return "" if says_how else "it does not say how the package was built"


def duration(seconds: float) -> str:
    """``34 s``, ``2 min 5 s``, ``1 h 4 min``."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"
    minutes, remainder = divmod(round(seconds), _MINUTE)
    return f"{minutes} min {remainder} s" if seconds < _HOUR else f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


def licence(declared: object) -> str:
    """A declared licence as an SPDX expression where it is or means one, else in its own words."""
    return _licence(declared) if isinstance(declared, str) else ""


@lru_cache(maxsize=1000)
def _licence(text: str) -> str:
    return _SEE_FILES if text == "LicenseRef-see-license-files" else spdx_expression(text) or text


_TEMPLATES.filters |= {
    "web_link": web_link,
    "size": partial(format_amount, unit="bytes"),
    "path": quote,
    "duration": duration,
    "tensor_size": size_in_words,
    "day": day,
    "licence": licence,
    "command": command,
    "name_page": name_page,
    "stack_page": stack_page,
    "validated_list": validated_list,
    "link": link,
    "chip": chip,
    "chips": chips,
    "need": need,
}
_TEMPLATES.globals = dict(_PAGES)  # without jinja's own, which no page uses: all of them are looked at for every page
_TEMPLATES.globals["parts"] = _TEMPLATES.get_template("parts.html.jinja").module  # importing it in each takes longer


@dataclass(frozen=True, kw_only=True, slots=True)
class PageFile:
    """One file of the site: its path below the channel, the digest of what it is made of, and how to make it."""

    path: str
    digest: str
    render: Callable[[], str | bytes]

    def content(self) -> bytes:
        """Its bytes, rendered now."""
        rendered = self.render()
        return rendered if isinstance(rendered, bytes) else rendered.encode()


def page_file(path: str, parts: Sequence[object], render: Callable[[], str | bytes]) -> PageFile:
    """A file made of ``parts``; its digest is over their repr, which must show all that matters, and over the code."""
    digest = hashlib.sha256(_code_digest())
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(content), content))
    return PageFile(path=path, digest=digest.hexdigest(), render=render)


@cache
def _code_digest() -> bytes:
    """Changes with everything that decides how a page looks."""
    digest = hashlib.sha256((__version__ + shared_style()).encode())
    for path in sorted(HERE.rglob("*")):
        if path.suffix in {".py", ".jinja", ".css", ".js"}:
            digest.update(path.read_bytes())
    return digest.digest()


def render_page(template: str, title: str, described: str, site: Site, path: str, **values: object) -> str:
    """The page of ``site`` at ``path`` with the content that a template makes.

    ``title`` and ``described`` are what search engines show of it. It stands between parts that are the same for all
    pages of its folder; a template that extends another one takes longer.
    """
    settings = site.settings
    root = "../" * path.count("/")
    around = partial(_around, root, settings.title, settings.contact)
    content = render(template, site=site, settings=settings, root=root, **values)
    top, bottom = around("top.html.jinja"), around("bottom.html.jinja")
    head = f'<title>{escaped(title)}</title>\n<meta name="description" content="{escaped(described)}">'
    return f"{_START}{head}\n{top}\n{content}\n{bottom}"


def render(template: str, **values: object) -> str:
    """What a template makes of ``values``."""
    return _TEMPLATES.get_template(template).render(values)


@lru_cache(maxsize=16)
def _around(root: str, title: str, contact: str, template: str) -> str:
    return render(template, root=root, title=title, contact=contact)


def shared_parts(settings: PageSettings) -> bytes:
    """What every page shows of the settings, as a part of it."""
    return repr((settings.title, settings.contact)).encode(errors="surrogatepass")


def list_page(number: int) -> str:
    """The path of a page of the list of all packages."""
    return f"{PAGE_FOLDER}/packages-{number}.html"


def install_commands(site: Site, environment: str, specs: Sequence[str]) -> list[tuple[str, str]]:
    """For each client, the command that makes an environment with ``specs`` from the channel."""
    address = site.settings.address or _ADDRESS
    others = list(map(without_credentials, site.foundation.client_addresses))
    channels = " ".join(f"-c {shlex.quote(channel)}" for channel in (address, *others))
    wanted, name = shlex.join(specs), shlex.quote(environment)
    return [
        ("conda", f"conda create -n {name} --override-channels {channels} {wanted}"),
        ("mamba", f"mamba create -n {name} --override-channels {channels} {wanted}"),
        ("pixi", f"pixi init {channels} {name} && cd {name} && pixi add {wanted}"),
    ]


def tool_commands(site: Site) -> list[tuple[str, str]]:
    """For each client, the command that adds channel_tools to the active environment; none if the channel lacks it."""
    if not is_listed(site, _TOOL):
        return []
    address = site.settings.address or _ADDRESS
    channels = f"-c {shlex.quote(address)}"
    return [
        ("conda", f"conda install --override-channels {channels} {_TOOL}"),
        ("mamba", f"mamba install --override-channels {channels} {_TOOL}"),
        ("pixi", f"pixi add {_TOOL}"),
    ]


def with_stacks(site: Site, specs: Sequence[str]) -> tuple[str, ...]:
    """MatchSpecs of a stack, with the package that says how it is run where the channel has it, as env create does."""
    return (*specs, *([STACKS_PACKAGE] if is_listed(site, STACKS_PACKAGE) else []))


def is_listed(site: Site, name: str) -> bool:
    """Whether new solves see a package of this name."""
    package = site.packages.get(name)
    return package is not None and any(build.hidden is None for build in package.builds)


def lock_commands(environment: str) -> list[tuple[str, str]]:
    """For each client, the command that reinstalls exactly the same packages, here or elsewhere (conda 26.7 does)."""
    name, file = shlex.quote(environment), shlex.quote(f"{environment}.txt")
    again = shlex.quote(f"{environment}-again")
    return [
        (client, f"{client} list -n {name} --explicit > {file} && {client} create -n {again} --file {file}")
        for client in ("conda", "mamba")
    ] + [("pixi", "pixi install --locked")]


def exact_commands(environment: str, address: str) -> list[tuple[str, str]]:
    """For each client, the command that installs what the explicit list at ``address`` names.

    A private channel's token is in .netrc, which all of them read.
    """
    name, file = shlex.quote(environment), shlex.quote(address.rpartition("/")[2])
    fetched = f"curl --fail --location --netrc-optional --remote-name {shlex.quote(address)}"
    return [
        ("conda", f"{fetched} && conda create -n {name} --file {file}"),
        ("mamba", f"{fetched} && mamba create -n {name} --file {file}"),
        ("channel_tools", f"{fetched} && channel_tools env create ./{name} --lock {file}"),
    ]


def package_files(site: Site, store: PageStore) -> list[PageFile]:
    """The pages of builds and packages, linked pages before those that link to them; ``store`` has the files."""
    builds = list(_build_files(site, store))
    return [
        *builds,
        *_name_files(site, {file.path: file.digest for file in builds}),
    ]


def _build_files(site: Site, store: PageStore) -> Iterator[PageFile]:
    shared = shared_parts(site.settings)
    for package in site.packages.values():
        older = builds_before(package) if len(package.builds) > 1 else {}
        for build in package.builds:
            before = older.get(build.page)
            row, settings = build.row, site.settings
            parts: list[object] = [
                row.record_json,
                row.about_json,
                row.origin_json,
                build.record if build.patched else None,
                (build.hidden, build.foundation, site.summaries[package.name]),
                [(name, site.summaries[name]) for name in build.needs if name in site.packages],
                settings.builds.get(build.file_name),
                [(stack, run.started, run.ranks) for stack, run in site.validations.get(row.sha256, ())],
            ]
            if before is not None:
                parts += [before.page, before.record, before.row.origin_json, before.row.stamp.size_bytes]
            yield page_file(build.page, [*parts, shared], partial(_render_build, site, package, build, store, before))


def _render_build(site: Site, package: Package, build: Build, store: PageStore, before: Build | None) -> str:
    return render_page(
        "build.html.jinja",
        f"{build.file_name}: {site.settings.title}",
        f"Requirements, files, sources, patches and sha256 of {build.file_name}",
        site,
        build.page,
        package=package,
        build=build,
        summary=site.summaries[package.name],
        chips=build_chips(site, build),
        details=_details(store, build),
        built=site.settings.builds.get(build.file_name),
        validations=site.validations.get(build.row.sha256, ()),
        claims=read_claims(store.read(f"{build.subdir}/{build.file_name}.sigs"), build) if build.attested else None,
        constrains=texts_of(build.record, "constrains"),
        run_exports=field_lines(build.record.get("run_exports")),
        variant=sorted((build.row.origin.variant or {}).items()),
        needs=_linked_specs(site, build),
        before=before,
        changes=[] if before is None else changes_since(before, build),
    )


def build_chips(site: Site, build: Build) -> list[tuple[str, str]]:
    """What tells a build apart in a word or two each, with the kind of each chip."""
    chips = [("yanked", "bad") if build.yanked else ("earlier", "") if build.hidden else ("available", "good")]
    chips += [("foundation", "")] if build.foundation else []
    chips += [("validated", "good")] if build.row.sha256 in site.validations else []
    chips += [("signed", "accent")] if build.attested else []
    return chips


def _details(store: PageStore, build: Build) -> Details | None:
    try:
        folder = store.files.at(build.subdir)
        return read_details(folder.path / build.file_name, folder)
    except (IntegrityError, ChannelError) as err:  # it is damaged, or not a regular file
        _log.warning("%s; its page lists no files", err)
        return None


def _linked_specs(site: Site, build: Build) -> list[tuple[str, str | None, str]]:
    """Each dependency; where the channel has its package, the page and the summary of it."""
    pages = {name: name_page(name) for name in build.needs if name in site.packages}
    named = [(spec, name_or_none(spec) or "") for spec in texts_of(build.record, "depends")]
    return [(spec, pages.get(name), site.summaries.get(name, "")) for spec, name in named]


def _name_files(site: Site, builds: Mapping[str, str]) -> Iterator[PageFile]:
    """The pages of packages; ``builds`` are the digests of builds' pages, which cover all that is shown here."""
    settings = site.settings
    shared = shared_parts(settings) + repr((settings.address, site.foundation)).encode(errors="surrogatepass")
    for package in site.packages.values():
        digests = [(build.page, builds[build.page]) for build in package.builds]
        yield page_file(package.page, [digests, package.needed_by, shared], partial(_render_name, site, package))


def _render_name(site: Site, package: Package) -> str:
    shown = package.shown
    versions = list(dict.fromkeys(build.version for build in package.builds))
    by_version = {version: [build for build in package.builds if build.version == version] for version in versions}
    return render_page(
        "name.html.jinja",
        f"{package.name}: {site.settings.title}",
        site.summaries[package.name] or f"Versions, builds and dependencies of the conda package {package.name}",
        site,
        package.page,
        package=package,
        shown=shown,
        summary=site.summaries[package.name],
        chips=build_chips(site, shown),
        description=texts(shown.row.about.get("description")),
        links=[(words, text) for key, words in _LINKS.items() for text in texts(shown.row.about.get(key))],
        needs=_linked_specs(site, shown),
        machine=machine_needs([shown]),
        run_exports=field_lines(shown.record.get("run_exports")),
        versions=[
            (
                version,
                variant_table(builds),
                [build for build in builds if not build.earlier],
                [build for build in builds if build.earlier],
            )
            for version, builds in by_version.items()
        ],
        commands=install_commands(site, package.name, [package.name]),
        state_words=partial(_state_words, site),
    )


def _state_words(site: Site, build: Build) -> Markup:
    """Whether a build is offered, when it was built and with which stacks it was validated."""
    built = site.settings.builds.get(build.file_name)
    words = [] if build.hidden is None else [escaped(build.hidden)]
    took = "" if built is None or built.seconds is None else f" in {duration(built.seconds)}"
    text = Markup("built and tested {}{}")
    words.append(Markup("built") if built is None else text.format(day(built.finished), took))
    known = Markup("validated {} in stack {}")
    words += [known.format(day(run.started), escaped(name)) for name, run in site.validations.get(build.row.sha256, ())]
    return Markup(", ").join(words)
