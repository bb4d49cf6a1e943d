"""Traces as users bring them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.replay.trace import TraceError, new_share, prolong, read, scale

JSONL = """\
{"timestamp": 5000, "input_length": 1000, "output_length": 10, "hash_ids": [0, 1]}

{"timestamp": 2000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 9000, "input_length": 500, "output_length": 0, "hash_ids": [7]}
{"timestamp": 9000, "input_length": 513, "output_length": 1, "caller": "ann"}
"""
CSV = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,1100,109
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


class TestJsonl:
    def test_is_sorted_and_counted_from_its_first_request(self, tmp_path: Path) -> None:
        found = read(written(tmp_path, "t.jsonl", JSONL), 512)
        assert [one.at_s for one in found] == [0.0, 3.0, 7.0, 7.0]
        assert [one.tokens for one in found] == [600, 1000, 500, 513]

    def test_caller_is_the_second_block_unless_there_is_one_or_a_name(self, tmp_path: Path) -> None:
        found = read(written(tmp_path, "t.jsonl", JSONL), 512)
        assert [one.caller for one in found] == ["1", "1", "7", "ann"]

    def test_prompt_without_blocks_shares_none(self, tmp_path: Path) -> None:
        found = read(written(tmp_path, "t.jsonl", JSONL), 512)
        assert len(found[3].blocks) == 2
        assert not set(found[3].blocks) & {0, 1, 7}

    def test_fault_names_file_and_line(self, tmp_path: Path) -> None:
        path = written(tmp_path, "t.jsonl", JSONL + '{"timestamp": 1}\n')
        with pytest.raises(TraceError, match=r"t\.jsonl:6: .*input_length"):
            read(path, 512)

    def test_prompt_without_tokens_is_refused(self, tmp_path: Path) -> None:
        path = written(tmp_path, "t.jsonl", JSONL.replace("600", "0"))
        with pytest.raises(TraceError, match=r"t\.jsonl:3: "):
            read(path, 512)


class TestCsv:
    def test_every_prompt_is_new(self, tmp_path: Path) -> None:
        first, second = read(written(tmp_path, "t.csv", CSV), 512)
        assert second.at_s == pytest.approx(4.314579)
        assert (len(first.blocks), len(second.blocks)) == (1, 3)
        assert new_share([first, second], 512) == 1.0

    def test_fault_names_file_and_line(self, tmp_path: Path) -> None:
        path = written(tmp_path, "t.csv", CSV.replace("1100", "many"))
        with pytest.raises(TraceError, match=r"t\.csv:3: "):
            read(path, 512)


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.txt", JSONL), ("t.jsonl", ""), ("t.jsonl", JSONL.splitlines()[0]), ("gone.csv", None)],
)
def test_what_is_no_trace_is_refused_by_name(tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(TraceError, match=name):
        read(path, 512)


def test_scaled_trace_lasts_as_long_as_asked(tmp_path: Path) -> None:
    found = scale(read(written(tmp_path, "t.jsonl", JSONL), 512), 70.0)
    assert [one.at_s for one in found] == [0.0, 30.0, 70.0, 70.0]


def test_new_share_counts_what_no_prompt_before_began_with(tmp_path: Path) -> None:
    found = read(written(tmp_path, "t.jsonl", JSONL), 512)
    assert new_share(found, 512) == (600 + 0 + 500 + 513) / (600 + 1000 + 500 + 513)


def test_prolonged_trace_repeats_under_new_conversations_and_the_same_system_prompt(
    tmp_path: Path,
) -> None:
    found = prolong(read(written(tmp_path, "t.jsonl", JSONL), 512), 12.0)
    assert [one.at_s for one in found] == [0.0, 3.0, 7.0, 7.0, 7.0, 10.0]
    again = found[4]
    assert again.caller not in {one.caller for one in found[:4]}
    assert again.blocks[0] == 0
    assert not set(again.blocks[1:]) & {block for one in found[:4] for block in one.blocks}
