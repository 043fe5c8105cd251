"""Workload files: what is read, and how a damaged one is refused."""

import copy
import json

import pytest

from paged_chat.app.bench.workload import Branch, Step, WorkloadInvalid, load_workload

STEP = {"chat": "a", "append": [5, 6, 7], "append_end": [2], "reply_tokens": 4, "n": 1}
BRANCH = {**STEP, "chat": "b", "prompt_from": {"chat": "a", "upto_step": 1}}
GOOD = {"name": "tiny", "steps": [STEP, STEP, BRANCH]}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "work.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_a_workload_is_read(write):
    workload = load_workload(write(GOOD))
    assert workload.name == "tiny"
    assert workload.steps[0] == Step(chat="a", append=(5, 6, 7), append_end=(2,), reply_tokens=4)
    assert workload.steps[2].prompt_from == Branch("a", 1)
    assert workload.largest_token_id == 7


def test_prompt_lengths_follow_the_histories_and_branches(write):
    # A turn leaves prompt + 4 generated + 1 end token behind; the branch starts after the first turn.
    assert load_workload(write(GOOD)).prompt_lengths() == [3, 11, 11]


def test_seeds_that_follow_each_other_become_the_first_one(write):
    step = {**STEP, "n": 3, "temperature": 1.0, "seeds": [7, 8, 9]}
    workload = load_workload(write({"name": "seeded", "steps": [step]}))
    assert (workload.steps[0].n, workload.steps[0].temperature, workload.steps[0].seed) == (3, 1.0, 7)


def damaged(**changes):
    """GOOD with fields of its last step replaced; None removes one."""
    workload = copy.deepcopy(GOOD)
    for name, value in changes.items():
        if value is None:
            del workload["steps"][2][name]
        else:
            workload["steps"][2][name] = value
    return workload


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "Expecting value at line 1, column 1"),
        ('{"steps": [', "Expecting value at line 1, column 12"),
        ("[]", "the file must be an object, not a list"),
        ({"name": "x"}, "steps must be a list, not nothing"),
        ({"name": "x", "steps": []}, "steps holds no step"),
        ({"name": 3, "steps": [STEP]}, "name must be a name, not a number"),
        ({"name": "x", "steps": [5]}, "steps[0] must be an object, not a number"),
        (damaged(append=None), "steps[2].append must be a list, not nothing"),
        (damaged(append=[]), "steps[2].append holds no token"),
        (damaged(append=[1, -1]), "steps[2].append[1] must be a whole number from 0 to 2147483647, not -1"),
        (damaged(append=[1, "x"]), "steps[2].append[1] must be a whole number from 0 to 2147483647, not 'x'"),
        (damaged(append_end=[True]), "steps[2].append_end[0] must be a whole number"),
        (damaged(reply_tokens=0), "steps[2].reply_tokens must be a whole number from 1"),
        (damaged(reply_tokens=None), "steps[2].reply_tokens must be a whole number from 1"),
        (damaged(n=0), "steps[2].n must be a whole number from 1 to 256, not 0"),
        (damaged(n=1.5), "steps[2].n must be a whole number from 1 to 256, not 1.5"),
        (damaged(temperature="warm"), "steps[2].temperature must be a number from 0 to 100, not 'warm'"),
        (damaged(n=2, seeds=[1, 3]), "steps[2].seeds must be 2 consecutive numbers (one a reply), not [1, 3]"),
        (damaged(n=2, seeds=[1]), "steps[2].seeds must be 2 consecutive numbers (one a reply), not [1]"),
        (damaged(seeds=[]), "steps[2].seeds must be 1 consecutive numbers (one a reply), not []"),
        (damaged(prompt_from={"chat": "z", "upto_step": 0}), "steps[2].prompt_from.chat names 'z'"),
        (damaged(prompt_from={"chat": "a", "upto_step": 3}), "steps[2].prompt_from.upto_step must be a whole number"),
        (damaged(prompt_from=[1]), "steps[2].prompt_from must be an object, not a list"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_workload_is_refused_with_the_place(write, content, fault):
    path = write(content)
    with pytest.raises(WorkloadInvalid) as refused:
        load_workload(path)
    assert str(refused.value).startswith(f"{path} isn't a workload: ")
    assert fault in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(WorkloadInvalid, match=r"can't read the workload .*missing\.json: No such file or directory"):
        load_workload(tmp_path / "missing.json")
    with pytest.raises(WorkloadInvalid, match="Is a directory"):
        load_workload(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "work.json"
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(WorkloadInvalid, match="byte 10 isn't UTF-8"):
        load_workload(path)
