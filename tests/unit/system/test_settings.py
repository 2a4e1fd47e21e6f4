# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pwd
from pathlib import Path
from typing import Literal, NoReturn

import pytest

from channel_tools.system.errors import UsageError
from channel_tools.system.settings import make_settings, user_folder, user_path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "recipes" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "variants").mkdir()
    (tmp_path / "tree" / "variants" / "stacks.yaml").write_text("stacks: {}\n")
    return tmp_path / "tree"


def test_tree_is_found_upward(tree: Path) -> None:
    settings = make_settings(root=None, output=None, environ={}, cwd=tree / "recipes" / "deep")
    assert settings.tree.root == tree
    assert settings.channel == tree / "output" / "channel"


def test_option_wins_over_environment(tree: Path, tmp_path: Path) -> None:
    environ = {"CHANNEL_TOOLS_ROOT": str(tmp_path / "elsewhere"), "CHANNEL_TOOLS_OUTPUT": str(tmp_path / "out")}
    settings = make_settings(root=tree, output=None, environ=environ, cwd=tmp_path)
    assert settings.tree.root == tree
    assert settings.output == tmp_path / "out"


def test_no_tree_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither this folder nor any above it"):
        make_settings(root=None, output=None, environ={}, cwd=tmp_path)
    with pytest.raises(UsageError, match=r"expected recipes/ and variants/stacks\.yaml"):
        make_settings(root=tmp_path, output=None, environ={}, cwd=tmp_path)


def test_settings_keep_the_environment_and_do_not_show_it(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "variants").mkdir()
    (tmp_path / "variants" / "stacks.yaml").write_text("stacks: {}\n")
    settings = make_settings(root=tmp_path, output=None, environ={"HTTP_PROXY": "http://me:secret@proxy"}, cwd=tmp_path)
    assert settings.environ["HTTP_PROXY"] == "http://me:secret@proxy"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize("kind", ["cache", "config", "state"])
def test_a_user_without_a_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["cache", "config", "state"]
) -> None:
    """Else a folder named ~ would be made in the current one."""

    def no_row(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", no_row)
    for name in ("HOME", f"XDG_{kind.upper()}_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="has no home folder") as caught:
        user_folder(kind)
    assert f"XDG_{kind.upper()}_HOME" in str(caught.value.hint)
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", "/srv/x")
    assert user_folder(kind) == Path("/srv/x/channel_tools")


def test_homes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UsageError, match="no such home folder"):
        user_path("~nosuchuser/x")
