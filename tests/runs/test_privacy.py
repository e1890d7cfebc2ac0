import importlib.util
import math
from pathlib import Path

import pytest

import cfcl
from cfcl.config import Config
from cfcl.runs import card, folders, privacy, report
from cfcl.runs.folders import Run
from tests.conftest import small

accountant = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None, reason="dp-accounting is not installed: cfcl[privacy] brings it"
)
NOISY = ("exchange.mode=implicit", "privacy.clip=1.0", "privacy.noise=4.898979486")


def run_of(config: Config, tmp_path: Path) -> Run:
    folder = cfcl.run(config, out=tmp_path, workers=1, plotted=False).folder
    assert folder is not None
    return folders.load(folder)


@accountant
def test_epsilon_of_one_gaussian_is_that_of_the_analytic_formula() -> None:
    # Noise 2 over the distance 2 is a Gaussian mechanism with sigma 1 and sensitivity 1. Balle and Wang (2018):
    # delta = Phi(1/2 - eps) - e^eps Phi(-1/2 - eps). With eps = 1: Phi(-0.5) - e Phi(-1.5)
    # = 0.308538 - 2.718282 * 0.066807 = 0.126937
    found = privacy.epsilon(2.0, 1, 0.126937)
    assert found is not None
    assert abs(found - 1.0) < 1e-4
    # and delta = 1e-5 is reached at 4.3772, as tables of the mechanism have it
    assert privacy.epsilon(2.0, 1, 1e-5) == pytest.approx(4.37718, abs=1e-4)


@accountant
def test_many_releases_are_one_with_less_noise() -> None:
    # sixteen of noise 8 are one of noise 8 / 4 = 2
    assert privacy.epsilon(8.0, 16, 1e-5) == pytest.approx(4.37718, abs=1e-4)
    assert privacy.epsilon(8.0, 0, 1e-5) == 0.0
    assert privacy.epsilon(0.001, 50, 1e-5) == math.inf
    assert "protects nothing (50 releases" in privacy.Spent(50, 0.001, 1e-5).told


@accountant
def test_what_is_told_of_a_run(tmp_path: Path) -> None:
    run = run_of(small(*NOISY, "records.explain=true"), tmp_path)
    first, covers, leaves_out = privacy.sentences(run)
    # Exchanges at 3, 6 and 9 with a push each: six releases of noise 2 * sqrt(6) are one of noise 2, as above
    assert "By schedule: epsilon 4.38 (6 releases of one image, noise 4.89898, delta 1e-05)." in first
    # What was sent most often can be read off the records.
    often = max(
        sum(any(reason.index == index for reason in pull.reasons or ()) for pull in run.pulls if pull.receiver == 1)
        for index in range(max(run.setup.points))
    )
    seen = privacy.seen(run)
    assert seen is not None
    assert 3 + often <= seen.releases <= 6
    assert "on all links" in covers
    assert "which items are selected" in leaves_out
    text = card.render(run, card.Facts())
    assert first in text
    assert "had Gaussian noise" in text
    assert "By schedule: epsilon 4.38" in report.render([run])


def test_without_explanations_one_image_may_have_been_in_every_pull(tmp_path: Path) -> None:
    run = run_of(small(*NOISY, "exchange.method=uniform"), tmp_path)
    found = privacy.seen(run)
    assert found is not None
    assert found.releases == 3  # exchanges at 3, 6 and 9; no reserves
    assert privacy.planned(run.config, run.setup) == found


def test_who_is_not_traced_is_not_counted(tmp_path: Path) -> None:
    assert privacy.seen(run_of(small(*NOISY, "evaluation.num_traced=2"), tmp_path)) is None


def test_what_is_lost_has_left_its_device(tmp_path: Path) -> None:
    run = run_of(small(*NOISY, "faults.loss=1.0"), tmp_path)
    assert run.pulls == ()
    assert privacy.seen(run) is None
    allowed = privacy.planned(run.config, run.setup)
    assert allowed is not None
    assert allowed.releases == 6


def test_without_the_accountant_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "epsilon", lambda *numbers: None)
    assert privacy.Spent(6, 4.0, 1e-5).told == (
        "epsilon not computed (6 releases of one image, noise 4, delta 1e-05): pip install 'cfcl[privacy]'"
    )


def test_a_run_without_noise_says_nothing(tmp_path: Path) -> None:
    run = run_of(small("exchange.mode=implicit"), tmp_path)
    assert privacy.sentences(run) == []
    assert "blurred by noise" in card.render(run, card.Facts())
