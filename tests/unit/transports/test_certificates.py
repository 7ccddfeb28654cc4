"""Until when certificates are valid, and what `streamer check --probe` says about it."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streamer.transports.certificates import CertificateFile, CertificateRole, expiry_probe, valid_until_s
from streamer.transports.probe import Answer, Verdict
from tests.certificates import DAY, write_certificates


def probed(path: Path, role: CertificateRole = CertificateRole.CLIENT) -> Answer:
    async def run() -> Answer:
        return await expiry_probe("tls.cert_file", CertificateFile(role, path)).run()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("left", "verdict", "text"),
    [
        (31 * DAY, Verdict.OK, "expires at"),
        (29 * DAY, Verdict.WARNING, "in 29 days"),
        (DAY, Verdict.WARNING, "in 1 days"),
        (-DAY, Verdict.PROBLEM, "expired at"),
    ],
)
def test_the_probe_warns_for_thirty_days(tmp_path: Path, left: timedelta, verdict: Verdict, text: str) -> None:
    write_certificates(tmp_path, client=left)
    answer = probed(tmp_path / "client.pem")
    assert answer.verdict is verdict
    assert text in answer.text


def test_a_file_without_a_certificate_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    assert probed(tmp_path / "none.pem").verdict is Verdict.PROBLEM
    assert probed(tmp_path / "missing.pem").verdict is Verdict.PROBLEM
    write_certificates(tmp_path)
    assert probed(tmp_path / "client.key").verdict is Verdict.PROBLEM  # and nothing of it is shown
    assert "BEGIN" not in probed(tmp_path / "client.key").text


def test_a_chain_is_valid_until_the_first_expires_and_authorities_until_the_last(tmp_path: Path) -> None:
    write_certificates(tmp_path, client=40 * DAY, server=50 * DAY)
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "client.pem").read_bytes() + (tmp_path / "server.pem").read_bytes())
    now_s = datetime.now(UTC).timestamp()
    days = {
        role: round((valid_until_s(CertificateFile(role, both)) - now_s) / DAY.total_seconds()) for role in CertificateRole
    }
    assert days == {CertificateRole.CLIENT: 40, CertificateRole.SERVER: 40, CertificateRole.AUTHORITIES: 50}
