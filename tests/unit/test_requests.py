# SPDX-License-Identifier: BSD-3-Clause
"""What each command may be asked for, and which options contradict each other."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest

from channel_tools.pins.choice import LockChoice
from channel_tools.requests.attest import AttestRequest, SignRequest, TrustRequest
from channel_tools.requests.build import BuildRequest, ClusterRequest, RebuildRequest
from channel_tools.requests.environment import EnvironmentRequest, InstallRequest
from channel_tools.requests.foundation import FoundationRequest
from channel_tools.requests.init import BumpRequest, FeedstockRequest, InitRequest
from channel_tools.requests.inventory import InventoryRequest
from channel_tools.requests.launch import ScriptRequest
from channel_tools.requests.mirror import MirrorRequest
from channel_tools.requests.names import CiService
from channel_tools.requests.pins import PinRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.requests.publish import PageRequest, PublishRequest
from channel_tools.requests.serve import ServeRequest
from channel_tools.requests.validate import JobRequest, ValidateRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import Settings, Tree, available_cores
from channel_tools.workflow import init


def test_a_request_reaches_other_machines_as_texts_with_whole_paths() -> None:
    command = ("channel_tools", "build", "--package", "a name")
    request = AttestRequest(signing_key=Path("keys"), command=command)
    given = AttestRequest.of_texts(request.as_texts())
    assert given == AttestRequest(signing_key=Path.cwd() / "keys", command=command)
    assert AttestRequest.of_texts(AttestRequest().as_texts()) == AttestRequest()


def test_options_of_sigstore_are_for_signing_by_it() -> None:
    package = Path("toy-1.0-0.conda")
    assert SignRequest(target=package, sigstore=True, sigstore_config=Path("config.json")).sigstore
    with pytest.raises(UsageError, match="without --sigstore"):
        SignRequest(target=package, sigstore_config=Path("config.json"))
    with pytest.raises(UsageError, match="without --sigstore"):
        SignRequest(target=package, identity_token_file=Path("token"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"emit": "snakemake"}, "--emit snakemake and --output-dir FOLDER go together"),
        ({"destination": Path("there")}, "--emit snakemake and --output-dir FOLDER go together"),
        ({"on": "slurm", "emit": "snakemake", "destination": Path("there")}, "--on and --emit together"),
    ],
    ids=["no folder", "only a folder", "both"],
)
def test_a_workflow_is_either_run_or_written_to_a_folder(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClusterRequest(**options)


def test_recipes_of_a_written_workflow_stand_in_its_own_folder(tmp_path: Path) -> None:
    settings = Settings(tree=Tree(root=tmp_path), output=tmp_path / "output", cache=tmp_path / "cache")
    assert ClusterRequest().is_here
    assert ClusterRequest().rendered(settings) == settings.rendered
    assert not ClusterRequest(on="slurm").is_here
    assert ClusterRequest(on="slurm").rendered(settings) == settings.rendered
    written = ClusterRequest(emit="snakemake", destination=tmp_path / "there")
    assert not written.is_here
    assert written.rendered(settings) == tmp_path / "there" / "recipes"


def test_packages_are_signed_with_the_command_that_built_them_unless_they_are_not_to_be() -> None:
    request = BuildRequest(plan=PlanRequest(stack="udp"), attest=AttestRequest(signing_key=Path("keys")))
    expected = AttestRequest(signing_key=Path("keys"), command=("channel_tools", "build", "--variant", "udp"))
    assert request.signing == expected
    assert BuildRequest(unattested=True).signing is None
    assert BuildRequest(recipe=Path("toy")).signing == AttestRequest()  # "channel_tools build" would be another build


def test_hashes_of_a_new_version_are_whole() -> None:
    assert BumpRequest(package="toy", version="2", sha256="a" * 64, commit="b" * 40).sha256 == "a" * 64
    with pytest.raises(UsageError, match="--sha256 must be 64 hexadecimal digits in lower case, got 'A"):
        BumpRequest(package="toy", version="2", sha256="A" * 64)
    with pytest.raises(UsageError, match="--commit must be 40 hexadecimal digits in lower case, got 'v2'"):
        BumpRequest(package="toy", version="2", commit="v2")


def test_whatever_is_not_given_stays_as_it_was() -> None:
    given = {name: value for name, value in asdict(PageRequest(title="Lab")).items() if value is not None}
    assert given == {"label": "main", "title": "Lab"}


def of_environment(options: dict[str, Any]) -> EnvironmentRequest:
    return EnvironmentRequest(prefix=Path("env"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"specs": ("numpy",), "install": InstallRequest(python="3.13")}, "MatchSpecs with --variant"),
        ({"specs": ("numpy",), "lock": Path("a.lock")}, "MatchSpecs with --variant"),
        ({"platform": "linux-64"}, "--platform without --lock"),
        ({"lock": Path("a.lock"), "install": InstallRequest(stack="udp")}, "--variant, --python or --pytorch with"),
        ({"trust": TrustRequest(trusted_keys=(Path("keys"),))}, "trust options without --require-attestation"),
        ({"categories": ("dev",)}, "--category or --environment without a lock"),
    ],
    ids=["specs and a variant", "specs and a lock", "platform", "lock and a variant", "trust", "category"],
)
def test_contradicting_options_make_no_environment(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        of_environment(options)


def test_a_lock_and_specs_need_no_stacks_and_the_options_choose_a_part_of_the_lock() -> None:
    assert of_environment({}).needs_stacks
    assert not of_environment({"specs": ("numpy",), "install": InstallRequest(channels=("lab",))}).needs_stacks
    locked = of_environment(
        {"lock": Path("a.lock"), "platform": "linux-64", "categories": ("dev",), "environment": "gpu"}
    )
    assert not locked.needs_stacks
    assert locked.choice == LockChoice(platforms=("linux-64",), categories=("dev",), environment="gpu")


def test_a_feedstock_is_for_every_stack_and_solved_from_conda_forge_unless_told_otherwise() -> None:
    request = FeedstockRequest(package="toy", destination=Path("toy-feedstock"), maintainers=("octocat",))
    assert (request.stack, request.channels, request.homepage) == (None, ("conda-forge",), None)


def test_as_many_packages_are_made_at_once_as_there_are_cores_unless_another_number_is_given() -> None:
    assert FoundationRequest().packages_at_once == available_cores()
    assert FoundationRequest(jobs=7).packages_at_once == 7


def test_a_tree_is_started_without_an_upstream_or_workflow_unless_asked() -> None:
    request = InitRequest(folder=Path("mysite"))
    assert (request.upstream, request.ci) == (None, None)


def test_there_is_a_template_for_every_service() -> None:
    templates = {path.name for path in (Path(init.__file__).parent / "site").glob("ci_*")}
    assert templates == {f"ci_{name}" for name in get_args(CiService)}


def test_the_part_of_a_lock_is_chosen() -> None:
    request = InventoryRequest(target=Path("conda-lock.yml"), platform="linux-aarch64", categories=("dev",))
    assert request.choice.platforms == ("linux-aarch64",)
    assert "dev" in request.choice.categories


def test_a_file_or_a_stack_is_listed_and_not_both() -> None:
    with pytest.raises(UsageError, match="a path and --variant together"):
        InventoryRequest(target=Path("conda-lock.yml"), install=InstallRequest(stack="udp"))


def test_a_script_is_run_in_the_folder_of_the_command() -> None:
    assert ScriptRequest(words=("train.py",)).folder == Path.cwd()


def test_the_hosts_of_a_job_script_are_the_schedulers() -> None:
    assert ScriptRequest(words=("train.py",), hosts_file=Path("hosts")).emit is None
    with pytest.raises(UsageError, match="--hosts and --emit together"):
        ScriptRequest(words=("train.py",), hosts_file=Path("hosts"), emit="slurm")


def test_a_job_script_has_one_node_for_an_hour_unless_asked() -> None:
    request = ScriptRequest(words=("train.py",), emit="pbs")
    assert (request.node_count, request.time_limit) == (1, "01:00:00")
    request = ScriptRequest(words=("train.py",), emit="pbs", nodes=2, time="00:10:00")
    assert (request.node_count, request.time_limit) == (2, "00:10:00")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": Path("job.sh")}, "-o without --emit"),
        ({"nodes": 1}, "--nodes without --emit"),
        ({"time": "01:00:00"}, "--time without --emit"),
        ({"emit": "slurm", "dry_run": True}, "--dry-run and --emit together"),
    ],
    ids=["file", "nodes", "time", "dry run"],
)
def test_what_is_for_a_job_script_starts_no_ranks_and_a_dry_run_writes_none(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ScriptRequest(words=("train.py",), **options)


def of_mirror(options: dict[str, Any]) -> MirrorRequest:
    return MirrorRequest(destination=Path("bundle"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"locks": (Path("a.lock"),), "python": "3.13"}, "--python or --pytorch with --lock"),
        ({"specs": ("numpy",), "stacks": ("udp",)}, "MatchSpecs with --variant"),
        ({"tool_pythons": ("3.13", "4")}, "--tool-python 4: expected a version like 3"),
        ({"categories": ("dev",)}, "--category or --environment without a lock"),
    ],
    ids=["lock", "specs", "tool", "category"],
)
def test_contradicting_options_make_no_mirror(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        of_mirror(options)


def test_this_program_is_included_for_the_python_that_runs_it_unless_others_are_named() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert of_mirror({}).pythons == (here,)
    assert of_mirror({"tool_pythons": ("3.12", "3.13")}).pythons == ("3.12", "3.13")
    assert of_mirror({"without_tool": True, "tool_pythons": ("4",)}).pythons == ()


def test_the_part_of_a_lock_is_what_its_options_choose() -> None:
    part = {"platforms": ("linux-64",), "categories": ("dev",), "environment": "gpu"}
    assert of_mirror({"locks": (Path("a.lock"),), **part}).choice == LockChoice(**part)  # type: ignore[arg-type]


def test_packages_are_named_only_to_update_them() -> None:
    assert PinRequest(packages=("libtoy",), update=True).packages == ("libtoy",)
    with pytest.raises(UsageError, match="libtoy other: package names need --update"):
        PinRequest(packages=("libtoy", "other"))


@pytest.mark.parametrize(
    ("request_", "options", "words"),
    [
        (PlanRequest(), (), "the default stack"),
        (PlanRequest(stack="udp"), ("--variant", "udp"), "stack udp"),
        (PlanRequest(stack="udp", every_stack=True), ("--variant", "udp", "--all"), "all stacks"),
        (PlanRequest(packages=("a", "b")), ("--package", "a", "--package", "b"), "a, b of the default stack"),
        (PlanRequest(all_variants=True), ("--all-variants",), "the default stack"),
        (PlanRequest(python="3.12", pytorch="2.9"), ("--python", "3.12", "--pytorch", "2.9"), "the default stack"),
    ],
    ids=["default", "stack", "all", "packages", "all variants", "variant"],
)
def test_a_request_says_its_options_and_is_said_in_words(
    request_: PlanRequest, options: tuple[str, ...], words: str
) -> None:
    assert (request_.options, request_.in_words) == (options, words)


@pytest.mark.parametrize(
    "plan",
    [PlanRequest(stack="udp"), PlanRequest(every_stack=True), PlanRequest(packages=("a",))],
    ids=["stack", "all", "package"],
)
def test_files_and_a_stack_are_not_published_together(plan: PlanRequest) -> None:
    with pytest.raises(UsageError, match="package files or a stack, not both"):
        PublishRequest(target="there", files=(Path("a.conda"),), plan=plan)


def test_only_files_have_a_foundation_of_their_own() -> None:
    with pytest.raises(UsageError, match="--foundation without package files"):
        PublishRequest(target="there", foundation="conda-forge")
    assert PublishRequest(target="there", files=(Path("a.conda"),), foundation="conda-forge").label == "main"


def test_the_new_package_comes_below_the_output_unless_a_folder_is_named(tmp_path: Path) -> None:
    settings = Settings(tree=Tree(root=tmp_path), output=tmp_path / "output", cache=tmp_path / "cache")
    assert RebuildRequest(package="toy").folder(settings) == tmp_path / "output" / "rebuilt"
    assert RebuildRequest(package="toy", destination=Path("there")).folder(settings) == Path.cwd() / "there"


def test_a_server_has_a_process_for_each_core_unless_told_otherwise() -> None:
    assert ServeRequest(folder=Path("channels")).worker_count == available_cores()
    assert ServeRequest(folder=Path("channels"), workers=3).worker_count == 3


def test_the_folder_is_the_same_wherever_a_worker_runs() -> None:
    assert ServeRequest(folder=Path("channels")).root == Path.cwd() / "channels"


IDENTITY = {"certificate_identity": "me@example.org", "certificate_oidc_issuer": "https://issuer.example"}


@pytest.mark.parametrize(
    "options",
    [
        {"certificate_identity": "me@example.org"},
        {"certificate_oidc_issuer": "https://issuer.example"},
        {"sigstore_config": Path("trust.json")},
        {**IDENTITY, "trusted_keys": (Path("keys"),)},
        {"certificate_identity": "", "certificate_oidc_issuer": ""},
        {"certificate_identity": "", "certificate_oidc_issuer": "", "trusted_keys": (Path("keys"),)},
    ],
    ids=["no issuer", "no identity", "only a Sigstore", "both kinds", "empty", "empty, and a key"],
)
def test_an_identity_has_an_issuer_and_no_key(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="go together, without --trusted-key"):
        TrustRequest(**options)


def test_any_option_names_someone() -> None:
    assert not TrustRequest().names_someone
    assert TrustRequest(trusted_keys=(Path("keys"),)).names_someone
    assert TrustRequest(**IDENTITY, sigstore_config=Path("trust.json")).names_someone  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "slurm", "emit": "pbs"}, "--on runs the validation, --emit only writes a script"),
        ({"to": Path("job.sh")}, "-o without --emit"),
        ({"nodes": 2}, "--nodes is only for jobs"),
        ({"ranks_per_node": 2}, "--ranks-per-node is only for jobs"),
        ({"time": "01:00:00"}, "--time is only for jobs"),
        ({"submit_options": ("-q",)}, "--submit-option is only for jobs"),
    ],
    ids=["both", "file", "nodes", "ranks", "time", "option"],
)
def test_options_of_a_job_are_for_a_job(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        JobRequest(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"details": True, "as_json": True}, "--details prints tables, --json prints only JSON"),
        ({"all_variants": True, "prefix": Path("env")}, "--all-variants validates the local channel's variants"),
        (
            {"job": JobRequest(on="slurm", local_scratch="/local"), "prefix": Path("env")},
            "--local-scratch installs into a new folder",
        ),
        ({"job": JobRequest(on="slurm"), "ranks": 3}, "--ranks is for this machine"),
        ({"job": JobRequest(local_scratch="/local")}, "--local-scratch is only for jobs and images"),
        ({"image": Path("a.squashfs"), "job": JobRequest(on="slurm")}, "--image validates what is in the image"),
    ],
    ids=["details", "variants", "scratch", "ranks", "disk", "image"],
)
def test_contradicting_options_make_no_validation(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ValidateRequest(**options)


def test_ranks_are_those_of_this_machine_or_of_all_nodes() -> None:
    assert [ValidateRequest().rank_count, ValidateRequest(ranks=5).rank_count] == [2, 5]
    assert ValidateRequest(job=JobRequest(on="slurm")).rank_count == 4
    assert ValidateRequest(job=JobRequest(emit="pbs", nodes=3, ranks_per_node=8)).rank_count == 24


def test_only_a_job_that_is_submitted_or_written_has_a_scheduler() -> None:
    jobs = [JobRequest(), JobRequest(on="job"), JobRequest(on="slurm"), JobRequest(emit="pbs")]
    assert [job.scheduler for job in jobs] == [None, None, "slurm", "pbs"]
    assert [job.is_asked for job in jobs] == [False, True, True, True]


def test_the_command_of_a_job_has_the_same_options() -> None:
    request = ValidateRequest(
        install=InstallRequest(stack="udp", channels=("a", "b"), python="3.13", pytorch="2.12"),
        prefix=Path("env"),
        timeout_s=90.0,
        keep=True,
        history=True,
        details=True,
        job=JobRequest(on="slurm"),
    )
    assert " ".join(request.words()) == (
        "--python 3.13 --pytorch 2.12 --channel a --channel b --prefix env --keep --timeout 90.0 --history --details"
    )
    scratch = ValidateRequest(all_variants=True, as_json=True, job=JobRequest(on="pbs", local_scratch="$TMPDIR"))
    assert list(scratch.words()) == ["--all-variants", "--json", "--local-scratch", "$TMPDIR"]
