import logging

from collab.envs.android.device_adb import log_to

LOGGER = logging.getLogger("collab.envs.android.somewhere")


def test_a_line_is_on_disk_as_soon_as_it_is_said(tmp_path):
    with log_to(tmp_path / "log"):
        assert not (tmp_path / "log").exists()
        LOGGER.info("step 1: tap %s", "Save")
        assert (tmp_path / "log").read_text().endswith(" INFO step 1: tap Save\n")
    LOGGER.info("step 2")
    assert (tmp_path / "log").read_text().count("\n") == 1


def test_runs_at_once_do_not_end_each_others_logs(tmp_path):
    one, two = log_to(tmp_path / "one"), log_to(tmp_path / "two")
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    LOGGER.info("still said")
    two.__exit__(None, None, None)
    assert "still said" in (tmp_path / "two").read_text()
    assert not LOGGER.isEnabledFor(logging.INFO)


def test_nothing_is_made_where_nothing_is_said(tmp_path):
    with log_to(tmp_path / "log"):
        logging.getLogger("collab.envs.web").info("a page")
    assert list(tmp_path.iterdir()) == []
