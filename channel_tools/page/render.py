# SPDX-License-Identifier: BSD-3-Clause
"""How each page is rendered, and the pages of builds, logs and packages; those of the whole channel are in front.py.

A file's digest covers all that it shows and the code that renders it, so a page is rendered, and its package opened,
only if the result would differ.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from channel_tools import __version__
from channel_tools.conda.addresses import without_credentials
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
from channel_tools.page.details import Details, read_claims, read_details, readable_log
from channel_tools.page.look import logo_kind
from channel_tools.page.model import (
    INDEX_PAGE,
    PAGE_FOLDER,
    log_file,
    name_page,
    stack_page,
    validated_list,
)
from channel_tools.page.parts import chip, chips, command, link, need
from channel_tools.provenance.licenses import spdx_expression
from channel_tools.system.charts import chart_style
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.pages import day, escaped, page_templates, shared_style, size_in_words
from channel_tools.system.progress import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.page.model import Build, Package, PageSettings, PageStore, Site

HERE = Path(__file__).parent
_MINUTE, _HOUR = 60, 3600
FEED = f"{PAGE_FOLDER}/feed.xml"
OWN_MARK = '<meta name="generator" content="channel_tools channel page">'
"""In every page that this program writes, and in no other."""
_START = '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
_TEMPLATES = page_templates(HERE / "templates")
_PAGES = {"index_page": INDEX_PAGE, "list_page": f"{PAGE_FOLDER}/packages-1.html", "feed_page": FEED}
_LINKS = {"home": "Home", "dev_url": "Source", "source_url": "Archive", "doc_url": "Documentation"}
"""Fields of about.json, as a page calls them."""
_SEE_FILES = "see its licence files"
_ADDRESS = "CHANNEL"
"""Placeholder for the channel's address if it was not given; JavaScript replaces it with the browser's address."""
_log = logging.getLogger(__name__)


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
    digest = hashlib.sha256((__version__ + shared_style() + chart_style()).encode())
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
    around = partial(_around, root, settings.title, settings.contact, logo_page(settings))
    content = render(template, site=site, settings=settings, root=root, **values)
    top, bottom = around("top.html.jinja"), around("bottom.html.jinja")
    head = f'<title>{escaped(title)}</title>\n<meta name="description" content="{escaped(described)}">'
    return f"{_START}{head}\n{top}\n{content}\n{bottom}"


def render(template: str, **values: object) -> str:
    """What a template makes of ``values``."""
    return _TEMPLATES.get_template(template).render(values)


@lru_cache(maxsize=16)
def _around(root: str, title: str, contact: str, logo: str | None, template: str) -> str:
    return render(template, root=root, title=title, contact=contact, logo_page=logo)


def shared_parts(settings: PageSettings) -> bytes:
    """What every page shows of the settings, as a part of it."""
    return repr((settings.title, settings.contact, logo_page(settings))).encode(errors="surrogatepass")


def logo_page(settings: PageSettings) -> str | None:
    """The path of the logo below the channel, None without one."""
    kind = None if settings.logo is None else logo_kind(settings.logo)
    return None if kind is None else f"{PAGE_FOLDER}/logo.{kind}"


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
    """The pages of logs, builds and packages, linked pages before those that link to them; ``store`` has the files."""
    builds = list(_build_files(site, store))
    return [
        *_log_files(site, store),
        *builds,
        *_name_files(site, {file.path: file.digest for file in builds}),
    ]


def _log_files(site: Site, store: PageStore) -> Iterator[PageFile]:
    for package in site.packages.values():
        for build in package.builds:
            if (sha256 := site.settings.logs.get(build.file_name)) is not None:
                parts = [sha256, shared_parts(site.settings)]
                yield page_file(build.log_page, parts, partial(_render_log, site, build, store))


def _render_log(site: Site, build: Build, store: PageStore) -> str:
    content = store.read(log_file(build.file_name))
    shown = None if content is None else readable_log(content)
    title = f"Log of {build.file_name}: {site.settings.title}"
    described = f"What the build of {build.file_name} printed, in phases"
    return render_page("log.html.jinja", title, described, site, build.log_page, build=build, log=shown)


def _build_files(site: Site, store: PageStore) -> Iterator[PageFile]:
    shared = shared_parts(site.settings)
    for package in site.packages.values():
        older = builds_before(package) if len(package.builds) > 1 else {}
        for build in package.builds:
            before = older.get(build.page)
            parts = _build_parts(site, build)
            if before is not None:
                parts += [before.page, before.record, before.row.origin_json, before.row.stamp.size_bytes]
            yield page_file(build.page, [*parts, shared], partial(_render_build, site, package, build, store, before))


def _build_parts(site: Site, build: Build) -> list[object]:
    row, known = build.row, [(name, site.summaries[name]) for name in build.needs if name in site.packages]
    patched = build.record if build.patched else None
    settings = site.settings
    history = (
        settings.builds.get(build.file_name),
        [(stack, run.started, run.ranks) for stack, run in site.validations.get(build.stem, ())],
        build.file_name in settings.logs,
    )
    return [row.record_json, row.about_json, row.origin_json, patched, (build.hidden, build.foundation, known), history]


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
        validations=site.validations.get(build.stem, ()),
        claims=read_claims(store.read(f"{build.subdir}/{build.file_name}.sigs"), build) if build.attested else None,
        has_log=build.file_name in site.settings.logs,
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
    chips += [("validated", "good")] if build.stem in site.validations else []
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
    words += [known.format(day(run.started), escaped(name)) for name, run in site.validations.get(build.stem, ())]
    return Markup(", ").join(words)
