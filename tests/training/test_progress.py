import io

import pytest
from rich.console import Console

from gnnforce.training.progress import ProgressBar, describe_epoch, time_left
from gnnforce.training.run_files import RunFiles
from gnnforce.training.session import make_trainer

from .helpers import h2_graphs, lengths, make_module, settings


def module_at(step=0, seconds=0.0, **training):
    module = make_module(settings(training=training), h2_graphs(lengths(8)))
    module.position.step, module.position.seconds = step, seconds
    return module


def test_time_left_of_epochs_follows_the_pace_of_this_session():
    module = module_at(step=4, seconds=110.0, epochs=2)  # 8 steps in all
    assert time_left(module, 0.0, 100.0) == "0:10"
    assert time_left(module, 0.5, 110.0) == "?"
    module.position.seconds = 100.0 + 7200
    assert time_left(module, 0.0, 100.0) == "2:00:00"


def test_time_left_of_minutes_is_what_remains():
    assert time_left(module_at(seconds=30.0, minutes=2), 0.0, 0.0) == "1:30"
    assert time_left(module_at(seconds=300.0, minutes=2), 0.0, 0.0) == "0:00"


def test_epochs_are_counted_for_people():
    module = module_at(epochs=3)
    module.position.epoch = 1
    assert describe_epoch(module) == "epoch 2/3"
    assert describe_epoch(module_at(minutes=1)) == "epoch 1"


def test_the_bar_shows_epoch_loss_and_time(tmp_path):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    module = module_at(epochs=2)
    bar = ProgressBar(console)
    trainer = make_trainer(module, [bar], RunFiles(tmp_path))
    bar.on_train_start(trainer, module)
    module.position.step = 6
    module.position.epoch = 1
    module.position.seconds = 3.0
    bar.on_train_batch_end(trainer, module, None, None, 0)
    bar.bar.refresh()
    bar.close()
    text = stream.getvalue()
    assert "epoch 2/2" in text
    assert "75 %" in text
    assert "0:01 left" in text
    bar.close()  # once more does nothing
    assert bar.task is None


@pytest.mark.parametrize("failing", [False, True])
def test_the_bar_ends_with_the_run(failing, tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True)
    module = module_at()
    bar = ProgressBar(console)
    trainer = make_trainer(module, [bar], RunFiles(tmp_path))
    bar.on_train_start(trainer, module)
    if failing:
        bar.on_exception(trainer, module, ValueError())
    else:
        bar.on_train_end(trainer, module)
    assert bar.task is None
