"""A phone that lacks an app: nothing shows it, nothing opens it, and everything else works as before."""

import asyncio

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps import INSTALLED
from collab.envs.simphone.apps.expense import PACKAGE
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.shell import run
from collab.envs.simphone.suite import ESSENTIAL, SimPhoneSuite
from collab.errors import ConfigError, UnknownName
from collab.seeds import generator

WITHOUT = SimPhoneSuite(without=["pro expense"])


def core(suite: SimPhoneSuite) -> SimPhone:
    return asyncio.run(suite.open()).core


def drawer(phone: SimPhone) -> str:
    """Everything that the app drawer shows."""
    phone.step(MOBILE.make("navigate_home"))
    shown = phone.step(MOBILE.make("swipe", direction="up")).observation.text
    return shown + phone.step(MOBILE.make("scroll", direction="down")).observation.text


def test_the_drawer_shows_every_app_but_this_one() -> None:
    names = {app.name for app in INSTALLED}
    for suite, lacking in ((SimPhoneSuite(), set()), (WITHOUT, {"Pro Expense"})):
        phone = core(suite)
        phone.reset(suite.instance("SystemWifiTurnOff", 1))
        text = drawer(phone)
        assert {name for name in names if f'"{name}"' in text} == names - lacking


def test_it_can_be_neither_opened_nor_found() -> None:
    phone = core(WITHOUT)
    before = phone.reset(WITHOUT.instance("SystemWifiTurnOff", 1))
    assert phone.step(MOBILE.make("open_app", app_name="Pro Expense")).observation == before
    assert PACKAGE not in run(phone.phone, "pm list packages").stdout
    assert run(phone.phone, f"monkey -p {PACKAGE} 1").phone == phone.phone
    assert not run(phone.phone, f"ls /data/data/{PACKAGE}").stdout
    assert all(PACKAGE not in path for path, _ in phone.phone.rows)


def test_its_tasks_are_left_out_also_where_another_app_takes_part() -> None:
    gone = {info.name for info in SimPhoneSuite().tasks()} - {info.name for info in WITHOUT.tasks()}
    assert len(gone) == 8
    assert "ExpenseAddMultipleFromMarkor" in gone
    with pytest.raises(UnknownName, match="ExpenseAddSingle"):
        WITHOUT.instance("ExpenseAddSingle", 0)


@pytest.mark.variations
@pytest.mark.parametrize("app", [app for app in INSTALLED if app.package not in ESSENTIAL], ids=lambda app: app.name)
def test_all_other_tasks_can_still_be_solved(app) -> None:
    suite = SimPhoneSuite(without=[app.name])
    phone = core(suite)
    assert suite.tasks()
    for info in suite.tasks():
        phone.reset(suite.instance(info.name, generator(1).randrange(2**32)))
        for action in phone.oracle() or ():
            result = phone.step(action)
        assert result.outcome is not None, info.name
        assert result.outcome.success, info.name


def test_results_and_rebuilt_episodes_tell_it_from_the_whole_phone() -> None:
    whole = SimPhoneSuite()
    assert WITHOUT.label == "androidworld[simphone, without Pro Expense]"
    assert whole.label == "androidworld[simphone]"
    assert WITHOUT.version != whole.version
    assert SimPhoneSuite(without=["Pro Expense App", "clipper"]).version == (
        SimPhoneSuite(without=["clipper", "pro expense"]).version
    )


def test_what_cannot_be_left_out_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean pro expense"):
        SimPhoneSuite(without=["pro expenses"])
    with pytest.raises(ConfigError, match=r"other apps and tasks need it; free: .*Pro Expense"):
        SimPhoneSuite(without=["settings"])
