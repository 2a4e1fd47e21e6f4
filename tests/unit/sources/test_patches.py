# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import difflib
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channel_tools.sources.patches import PatchedSource, apply_patch, check_patches, read_files
from channel_tools.system.errors import ConfigError
from tests.unit.sources.toys import git, tar_gz

LINES = [f"line {number}\n" for number in range(1, 31)]
BEFORE = "".join(LINES)


def diff(before: str, after: str, name: str = "src/a.c", *, context: int = 3) -> bytes:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=context
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    ).encode()


def changed(*numbers: int) -> str:
    return "".join(f"new {number}\n" if number in numbers else line for number, line in enumerate(LINES, start=1))


def applied(patch: bytes, texts: dict[str, bytes | None]) -> dict[str, bytes | None]:
    with tempfile.TemporaryDirectory() as holder:
        folder, file = Path(holder, "source"), Path(holder, "x.patch")
        folder.mkdir()
        file.write_bytes(patch)
        for name, content in texts.items():
            if content is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        apply_patch(file, folder, source="toy")
        found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        return {**dict.fromkeys(texts), **found}


def test_hunks_apply_where_their_lines_are() -> None:
    shifted = "extra\n" * 7 + BEFORE
    result = applied(diff(BEFORE, changed(5, 25)), {"src/a.c": shifted.encode()})
    assert result["src/a.c"] == ("extra\n" * 7 + changed(5, 25)).encode()


def test_a_hunk_that_differs_in_one_line_of_context_is_refused_with_file_and_lines() -> None:
    other = BEFORE.replace("line 24\n", "line 24 \n")
    with pytest.raises(ConfigError, match=r"hunk 2 of src/a\.c: line 24 is 'line 24 '; expected 'line 24'"):
        applied(diff(BEFORE, changed(5, 25)), {"src/a.c": other.encode()})


def test_a_patch_that_is_in_already_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hunk 1 of src/a\.c"):
        applied(diff(BEFORE, changed(5)), {"src/a.c": changed(5).encode()})


def test_files_are_made_removed_and_renamed() -> None:
    patch = b"""\
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1,2 @@
+one
+two
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/old b/moved
similarity index 100%
rename from old
rename to moved
diff --git a/c b/d
similarity index 50%
rename from c
rename to d
--- a/c
+++ b/d
@@ -1,2 +1,2 @@
 same
-c
+d
"""
    texts: dict[str, bytes | None] = {"gone": b"bye\n", "old": b"kept\n", "c": b"same\nc\n", "new": None, "moved": None}
    assert applied(patch, texts) == {
        "gone": None, "old": None, "c": None, "new": b"one\ntwo\n", "moved": b"kept\n", "d": b"same\nd\n",
    }  # fmt: skip


def test_an_insertion_behind_the_end_of_the_file_is_refused() -> None:
    patch = b"--- a/src/a.c\n+++ b/src/a.c\n@@ -40,0 +41 @@\n+more\n"
    with pytest.raises(ConfigError, match=r"hunk 1 of src/a\.c: the file has 30 lines, but the hunk starts at line 40"):
        applied(patch, {"src/a.c": BEFORE.encode()})


def test_settings_of_the_users_git_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[apply]\n  ignoreWhitespace = change\n[core]\n  autocrlf = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"line 24 is 'line 24 '"):
        applied(diff(BEFORE, changed(25)), {"src/a.c": BEFORE.replace("line 24\n", "line 24 \n").encode()})


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        pytest.param({"src/a.c": None}, "changes src/a.c, which does not exist", id="absent"),
        pytest.param({}, "changes src/a.c, which does not exist", id="unknown"),
    ],
)
def test_a_file_that_is_not_there_is_named(texts: dict[str, bytes | None], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        applied(diff(BEFORE, changed(5)), texts)


def test_binary_changes_are_refused() -> None:
    with pytest.raises(ConfigError, match="binary"):
        applied(b"diff --git a/x b/x\nBinary files a/x and b/x differ\n", {"x": b"1"})


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"no diff\n", 1), (b"--- a/x\n+++ b/x\n", 1), (b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n", 5)],
)
def test_what_is_no_diff_is_refused_with_its_line(content: bytes, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        applied(content, {"x": b"one\n"})
    assert caught.value.line == line


texts_of_lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "-- x\n", "+++ y\n"]), max_size=25).map("".join)


@settings(max_examples=30)
@given(before=texts_of_lines, after=texts_of_lines, cut=st.booleans(), trim=st.booleans())
def test_a_diff_applied_to_its_first_text_gives_its_second(*, before: str, after: str, cut: bool, trim: bool) -> None:
    before = before.removesuffix("\n") if cut else before
    after = after.removesuffix("\n") if trim else after
    patch = diff(before, after)
    if before == after or not patch:
        return
    assert applied(patch, {"src/a.c": before.encode()})["src/a.c"] == after.encode()


def test_patches_apply_one_upon_the_other_to_the_files_of_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "toy.tar.gz"
    archive.write_bytes(tar_gz({"toy-1/src/a.c": BEFORE.encode(), "toy-1/README": b"x\n"}))
    first, second = tmp_path / "1.patch", tmp_path / "2.patch"
    first.write_bytes(b"From: somebody\nSubject: why\n---\n\n" + diff(BEFORE, changed(5)))
    second.write_bytes(diff(changed(5), changed(5, 6)))
    check_patches(
        [
            PatchedSource(
                name="toy",
                content=archive,
                patches=(
                    first,
                    second,
                ),
            )
        ]
    )
    with pytest.raises(ConfigError, match=r"2\.patch:3: the patch does not apply to toy: hunk 1 of src/a\.c: line 5"):
        check_patches(
            [
                PatchedSource(
                    name="toy",
                    content=archive,
                    patches=(
                        second,
                        first,
                    ),
                )
            ]
        )


def test_names_without_leading_folders_are_found(tmp_path: Path) -> None:
    archive = tmp_path / "toy.tar.gz"
    archive.write_bytes(tar_gz({"toy-1/src/a.c": BEFORE.encode()}))
    plain = tmp_path / "p0.patch"
    plain.write_bytes(diff(BEFORE, changed(5)).replace(b"a/src", b"src").replace(b"b/src", b"src"))
    check_patches([PatchedSource(name="toy", content=archive, patches=(plain,))])


def test_an_archive_without_a_top_folder_is_read_as_it_is(tmp_path: Path) -> None:
    archive = tmp_path / "toy.tar.gz"
    archive.write_bytes(tar_gz({"src/a": b"1", "b": b"2"}))
    assert read_files(archive, {"src/a", "b", "c"}) == {"src/a": b"1", "b": b"2", "c": None}


def test_a_patch_file_that_is_none_is_named(tmp_path: Path) -> None:
    archive, patch = tmp_path / "toy.tar.gz", tmp_path / "x.patch"
    archive.write_bytes(tar_gz({"toy/a": b"1"}))
    patch.write_text("not a patch\n")
    with pytest.raises(ConfigError, match=r"x\.patch:1: the patch is not a unified diff"):
        check_patches([PatchedSource(name="toy", content=archive, patches=(patch,))])


def test_git_agrees_on_what_applies(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_text("extra\n" + BEFORE)
    patch = diff(BEFORE, changed(9, 20))
    (tmp_path / "x.patch").write_bytes(patch)
    try:
        subprocess.run(["git", "apply", "x.patch"], cwd=tmp_path, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    ours = applied(patch, {"src/a.c": ("extra\n" + BEFORE).encode()})
    assert (tmp_path / "src" / "a.c").read_bytes() == ours["src/a.c"]


def test_patches_change_the_files_of_a_folder_and_of_the_sources_before_it_exactly(tmp_path: Path) -> None:
    archive, file = tmp_path / "toy.tar.gz", tmp_path / "b.c"
    archive.write_bytes(tar_gz({"toy-1/src/a.c": BEFORE.encode()}))
    file.write_text(BEFORE)
    both, wrong = tmp_path / "both.patch", tmp_path / "wrong.patch"
    both.write_bytes(diff(BEFORE, changed(5)) + diff(BEFORE, changed(7), name="sub/b.c"))
    wrong.write_bytes(diff(BEFORE, changed(8), name="b.c").replace(b" line 9", b" line x"))
    first = PatchedSource(name="toy", content=archive)
    below = PatchedSource(name="folder", content={"b.c": file}, folder="sub")
    last = PatchedSource(name="last", content={"c": file}, patches=(both,))
    check_patches([first, below, last])
    with pytest.raises(ConfigError, match=r"both\.patch:\d+: the patch does not apply to last: it changes sub/b\.c"):
        check_patches([first, last])
    with pytest.raises(ConfigError, match=r"wrong\.patch:3: .* to folder: hunk 1 of b\.c: line 9 is 'line 9'"):
        check_patches([first, replace(below, patches=(wrong,)), last])


KINDS: dict[str, str] = {
    "content": "echo new > tool.sh",
    "new-program": "echo new > new.sh; chmod +x new.sh",
    "made-a-program": "chmod +x plain.txt",
    "made-a-program-and-changed": "chmod +x plain.txt; echo more >> plain.txt",
    "no-program-any-more": "chmod -x tool.sh",
    "program-changed": "echo more >> tool.sh",
    "link-led-elsewhere": "ln -sfn tool.sh link",
    "link-removed": "rm link",
    "link-made": "ln -s tool.sh other",
    "link-to-a-folder-made": "ln -s sub other",
    "dangling-link-removed": "rm dangling",
    "link-made-a-file": "rm link; echo text > link",
    "file-made-a-link": "rm plain.txt; ln -s tool.sh plain.txt",
    "letters-of-other-languages": "echo new > 'ü.txt'",
    "blanks": "echo more >> 'sp ace.txt'",
    "blanks-and-a-mode-alone": "chmod +x 'sp ace.txt'",
    "blanks-renamed": "git mv 'sp ace.txt' 'other name.txt'",
    "quotes": "echo new > 'a\"b.txt'",
    "renamed": "git mv plain.txt sub/moved.txt",
    "removed": "rm plain.txt",
    "emptied-folder": "rm sub/a.txt",
    "empty-file": ": > empty.txt",
    "hard-link-changed": "echo more >> hard.txt",
}
"""What a commit does."""


def _upstream(root: Path) -> Path:
    """A repository of an upstream with files of every kind; its first commit."""
    (root / "sub").mkdir(parents=True)
    (root / "tool.sh").write_text("echo old\n")
    (root / "tool.sh").chmod(0o755)
    (root / "plain.txt").write_text("one\ntwo\nthree\n")
    (root / "sub" / "a.txt").write_text("a\n")
    (root / "sp ace.txt").write_text("blank\n")
    (root / "hard.txt").write_text("hard\n")
    (root / "link").symlink_to("plain.txt")
    (root / "dangling").symlink_to("nowhere")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def _archive(root: Path, kind: str, folder: Path) -> Path | dict[str, Path]:
    """The first commit as a source of a kind."""
    if kind == "folder":
        git(root, "worktree", "add", "-q", str(folder / "files"), "HEAD")
        paths = [path for path in (folder / "files").rglob("*") if path.is_symlink() or path.is_file()]
        return {path.relative_to(folder / "files").as_posix(): path for path in paths if path.name != ".git"}
    archive = folder / f"toy.{kind}"
    if kind == "zip":
        git(root, "archive", "--prefix=toy-1/", "--format=zip", f"--output={archive}", "HEAD")
        return archive
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / "hard.txt", "toy-1/first.txt")
        for name in git(root, "ls-files", "-z").split("\0"):
            if name == "hard.txt":
                member = tarfile.TarInfo("toy-1/hard.txt")
                member.type, member.linkname = tarfile.LNKTYPE, "toy-1/first.txt"
                tar.addfile(member)
            elif name:
                tar.add(root / name, f"toy-1/{name}")
    return archive


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "folder"])
@pytest.mark.parametrize("change", KINDS)
def test_what_git_writes_applies_to_every_kind_of_source(tmp_path: Path, change: str, kind: str) -> None:
    root = _upstream(tmp_path / "upstream")
    content = _archive(root, kind, tmp_path)
    subprocess.run(["/bin/sh", "-ec", KINDS[change]], cwd=root, check=True)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")
    patch = tmp_path / "x.patch"
    patch.write_text(git(root, "format-patch", "--stdout", "-1", "--no-ext-diff") + "\n")
    check_patches([PatchedSource(name="toy", content=content, patches=(patch,))])

    copy = tmp_path / "copy"
    git(root, "worktree", "add", "-q", "--detach", str(copy), "HEAD~1")
    apply_patch(patch, copy, source="toy")
    assert git(copy, "add", "-A") == ""
    assert git(copy, "write-tree") == git(root, "rev-parse", "HEAD^{tree}")


def test_a_file_that_is_a_link_in_the_source_is_named(tmp_path: Path) -> None:
    archive, patch = tmp_path / "toy.tar.gz", tmp_path / "x.patch"
    (tmp_path / "link").symlink_to("real")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "link", "toy-1/link")
    patch.write_text("--- a/link\n+++ b/link\n@@ -1 +1 @@\n-real\n+other\n")
    with pytest.raises(ConfigError, match=r"x\.patch:3: .* hunk 1 of link: the source has a link to real there"):
        check_patches([PatchedSource(name="toy", content=archive, patches=(patch,))])


def test_nothing_is_written_through_a_link_of_an_earlier_source(tmp_path: Path) -> None:
    outside, patch = tmp_path / "outside", tmp_path / "x.patch"
    outside.mkdir()
    (tmp_path / "away").symlink_to(outside)
    (outside / "kept").write_text("kept\n")
    (tmp_path / "file").write_text("other\n")
    (tmp_path / "link").symlink_to(outside / "kept")
    patch.write_text(
        "".join(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-other\n+more\n" for name in ("away/kept", "link"))
    )
    first = PatchedSource(name="first", content={"away": tmp_path / "away", "link": tmp_path / "link"})
    second = PatchedSource(
        name="second", content={"away/kept": tmp_path / "file", "link": tmp_path / "file"}, patches=(patch,)
    )
    patch_of_both = tmp_path / "both.patch"
    patch_of_both.write_text("--- a/away\n+++ b/away\n@@ -1 +1 @@\n-x\n+y\n")
    with pytest.raises(ConfigError):
        check_patches([first, second, replace(second, patches=(patch_of_both,))])
    assert (outside / "kept").read_text() == "kept\n"
