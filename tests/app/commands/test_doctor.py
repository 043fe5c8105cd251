"""`paged-chat doctor`: what it finds, and that a broken part is said and not thrown."""

import json

from paged_chat.engine import kernel_check
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.kernel_check import KernelCheck, check_kernels


def test_the_report_says_what_matters(run_cli, home):
    ended = run_cli("doctor", "--device", "cpu")
    assert ended.code == 0
    for part in (
        "paged-chat 0.",
        "Python 3.",
        "torch 2.",
        "device cpu",
        f"home    {home}",
        "smollm2-135m: not here yet",
    ):
        assert part in ended.out


def test_json_holds_the_same(run_cli, home):
    report = json.loads(run_cli("doctor", "--json", "--device", "cpu", "--dtype", "bfloat16").out)
    assert report["uses"] == {"device": "cpu", "dtype": "bfloat16", "kernels": "cpu"}
    assert report["devices"][0]["name"] == "cpu"
    assert (report["home"], report["model_path"]) == (str(home), None)
    assert [trouble for trouble in report["troubles"] if trouble["is_fault"]] == []
    assert report["packages"]["torch"].startswith("2.")


def test_what_was_found_out_about_this_machine_is_said(run_cli, home, monkeypatch):
    from paged_chat.engine.model import path_choice
    from paged_chat.engine.model.machine_record import MachineRecord
    from paged_chat.engine.model.path_check import PathCheck
    from paged_chat.kernels.cpu import flash_operator

    good = PathCheck(path="dense step", shape="heads 9/3 x 64, float32", tolerance=1e-4, relative_error=2e-6)
    off = PathCheck(path="packed step", shape="int4, heads 9/3 x 64, float32", tolerance=2e-3, relative_error=0.5)
    record = MachineRecord(path_choice.identity(), {"a": good, "b": off})
    record.save()
    monkeypatch.setattr(flash_operator, "_try_flash", lambda: "torch 9 has no such operator")
    ended = run_cli("doctor", "--device", "cpu")
    assert ended.code == 0  # the app works, though not as fast
    assert "checked dense step (heads 9/3 x 64, float32) is off by 2.0e-06; rounding explains 0.0001" in ended.out
    assert "slower  packed step (int4, heads 9/3 x 64, float32) is off by 5.0e-01" in ended.out
    assert "dense weights serve instead" in ended.out
    assert "slower  torch 9 has no such operator: long prompts over cached ones are computed with masks" in ended.out
    report = json.loads(run_cli("doctor", "--json", "--device", "cpu").out)
    assert (len(report["checked"]), len(report["slower"])) == (1, 2)


def test_a_local_model_is_found(run_cli, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert json.loads(run_cli("doctor", "--json", "--model", str(tmp_path)).out)["model_path"] == str(tmp_path)


def test_a_home_that_cannot_be_made_is_a_fault(run_cli, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGED_CHAT_HOME", str(tmp_path / "file" / "home"))
    ended = run_cli("doctor", "--json")
    [trouble] = json.loads(ended.out)["troubles"]
    assert ended.code == 1
    assert trouble == {
        "words": f"the home folder {tmp_path / 'file' / 'home'} can't be made",
        "remedy": "name another one with --home or PAGED_CHAT_HOME, or change the rights to it",
        "is_fault": True,
    }


def test_faults_come_last_each_with_its_remedy(run_cli, home, tmp_path):
    home.mkdir()
    (home / "chats.db").write_bytes(b"no database at all, but of more than 16 bytes")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    lines = run_cli("doctor", "--device", "cpu", "--model", str(broken)).out.splitlines()
    assert lines[-4].startswith(f"fault   {home / 'chats.db'} is damaged or isn't a database")
    assert lines[-3].startswith("        remedy: put a copy of yours in its place")
    assert (
        lines[-2] == f"fault   {broken} isn't a sound GGUF file: it ends inside its header, at byte 4: it was cut short"
    )
    assert lines[-1] == "        remedy: fetch the file again, or choose another model with --model"


def test_a_device_that_is_not_there_is_a_fault(run_cli):
    ended = run_cli("doctor", "--device", "cuda:63")
    assert ended.code == 1
    assert "cuda:63" in ended.out


def test_kernels_are_checked_against_the_reference(run_cli):
    report = json.loads(run_cli("doctor", "--json", "--kernels", "--device", "cpu", "--dtype", "float32").out)
    checked = {check["kernel"] for check in report["kernels"]}
    attention = "attention_decode attention_prefix attention_prefill"
    operations = f"write_kv {attention} copy_blocks rms_norm rope rope_write_kv silu_mul linear"
    assert checked == {*operations.split(), "linear int4", "linear int8", "packed step"}
    assert [check for check in report["kernels"] if not check["passed"]] == []


def test_a_wrong_and_a_raising_kernel_are_found(monkeypatch):
    from paged_chat.kernels import cpu

    def broken_linear(hidden, weight, bias):
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr(cpu, "silu_mul", lambda gate_up: gate_up[..., : gate_up.shape[-1] // 2])
    monkeypatch.setattr(cpu, "linear", broken_linear)
    checks = list(check_kernels(EngineConfig(device="cpu", dtype="float32")))
    assert {check.kernel for check in checks if not check.passed} == {"silu_mul", "linear"}
    assert {check.fault for check in checks if check.kernel == "linear"} == {"RuntimeError: illegal instruction"}


def test_a_result_of_nan_fails():
    check = KernelCheck(kernel="rope", shape="1", tolerance=1.0, relative_error=float("nan"))
    assert not check.passed


def test_the_table_marks_what_failed(run_cli, monkeypatch):
    checks = [
        KernelCheck(kernel="rope", shape="1", tolerance=0.1, relative_error=0.01, time_ms=1.0, reference_ms=2.0),
        KernelCheck(
            kernel="attention_decode",
            shape="64",
            tolerance=0.1,
            relative_error=0.01,
            time_ms=1.0,
            reference_ms=2.0,
            gb_per_s=2500.0,
            copy_gb_per_s=3000.0,
        ),
        KernelCheck(kernel="linear", shape="1", tolerance=0.1, relative_error=0.5, time_ms=1.0, reference_ms=2.0),
        KernelCheck(kernel="silu_mul", shape="1", tolerance=0.1, fault="RuntimeError: no"),
    ]
    monkeypatch.setattr(kernel_check, "check_kernels", lambda config: iter(checks))
    ended = run_cli("doctor", "--kernels")
    rope, decode, linear, silu_mul = ended.out.splitlines()[-4:]
    assert ended.code == 1
    assert rope.split() == ["rope", "1", "1.0e-02", "1.000", "2.000"]
    assert decode.endswith("  reads 2,500 GB/s, 83% of a copy's 3,000")
    assert linear.endswith("over 0.1")
    assert silu_mul.endswith("RuntimeError: no")
