import datetime as dt

import pytest

from spark_jobs.arguments import parse

PLACES = ["--input", "s3a://bucket/traces/", "--output", "/tables"]


def test_one_date_several_dates_or_none() -> None:
    one = parse("p", [*PLACES, "--date", "2026-11-20"])
    assert (one.dates, one.input, one.output, one.slo) == ((dt.date(2026, 11, 20),), "s3a://bucket/traces", "/tables", None)
    several = parse("p", [*PLACES, "--from", "2026-11-29", "--to", "2026-12-01", "--slo", "x.yaml"])
    assert [str(date) for date in several.dates] == ["2026-11-29", "2026-11-30", "2026-12-01"]
    assert parse("p", PLACES).dates == ()


@pytest.mark.parametrize(
    ("dates", "says"),
    [
        pytest.param(["--date", "20.11.2026"], "'20.11.2026' is not a date: expected one such as 2026-11-21", id="format"),
        pytest.param(["--date", "2026-02-30"], "'2026-02-30' is not a date", id="no-such-day"),
        pytest.param(["--from", "2026-11-20"], "--from and --to go together", id="half"),
        pytest.param(
            ["--from", "2026-11-20", "--to", "2026-11-19"], "--from 2026-11-20 is after --to 2026-11-19", id="order"
        ),
        pytest.param(["--date", "2026-11-20", "--to", "2026-11-21"], "use one or the other", id="both"),
        pytest.param(["--date", "2026-11-20", "--input", ""], "expected a folder, got an empty string", id="no-folder"),
        pytest.param(["--date", "2026-11-20", "--input", "/in[1]"], "'/in[1]': expected a folder without [ ]", id="pattern"),
        pytest.param(["--date", "2026-11-20", "--input", "/a b:c"], "'/a b:c': expected a folder without :", id="scheme"),
        pytest.param(
            ["--date", "2026-11-20", "--output", "/out*"], "'/out*': expected a folder without *", id="pattern-out"
        ),
    ],
)
def test_mistakes_are_reported(capsys: pytest.CaptureFixture[str], dates: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as raised:
        parse("p", [*PLACES, *dates])
    assert raised.value.code == 2
    assert says in capsys.readouterr().err
