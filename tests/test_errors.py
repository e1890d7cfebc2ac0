from cfcl.errors import LONGEST, CfclError, WorkerLost


def test_a_complaint_is_one_line_that_a_terminal_can_show() -> None:
    said = "a\nb\x1b[31m\u2028\udcff\0 é × 中"
    assert str(CfclError(said)) == r"a\nb\x1b[31m\u2028\udcff\x00 é × 中"
    assert str(WorkerLost("as it was")) == "as it was"


def test_a_long_complaint_keeps_its_value_and_its_remedy() -> None:
    text = str(CfclError("value " + 5000 * "x" + " remedy"))
    assert len(text) == LONGEST + 5
    assert text.startswith("value xxx")
    assert text.endswith("xxx remedy")
