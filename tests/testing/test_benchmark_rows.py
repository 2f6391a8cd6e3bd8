from gnnforce.testing.benchmark_rows import Row, fill_ratios


def rows(**times):
    made = []
    for key, ms in times.items():
        strategy, n = key.split("_")
        made.append(Row("w", int(n), strategy, median_ms=ms))
    return made


def test_ratios_are_to_the_fastest_for_one_output_and_to_the_loop():
    some = rows(loop_1=4.0, chain_1=2.0, loop_4=10.0, chain_4=3.0)
    fill_ratios(some)
    assert [row.ratio_to_one for row in some] == [2.0, 1.0, 5.0, 1.5]
    assert [row.gain_over_loop for row in some] == [1.0, 2.0, 1.0, 10 / 3]


def test_a_strategy_with_wrong_numbers_sets_no_standard():
    some = rows(loop_1=4.0, wrong_1=1.0, loop_4=8.0)
    some[1].agrees = False
    fill_ratios(some)
    assert some[2].ratio_to_one == 2.0


def test_no_loop_no_gain():
    some = rows(loop_1=4.0, chain_64=8.0)
    fill_ratios(some)
    assert some[1].gain_over_loop is None
    assert some[1].ratio_to_one == 2.0


def test_memory_is_relative_to_the_same_strategy():
    some = rows(loop_1=1.0, chain_1=1.0, loop_4=1.0, chain_4=1.0)
    for row, mib in zip(some, (10.0, 20.0, 30.0, None), strict=True):
        row.peak_mib = mib
    fill_ratios(some)
    assert [row.peak_ratio_to_one for row in some] == [1.0, 1.0, 3.0, None]


def test_times_are_in_milliseconds():
    row = Row("w", 1, "loop")
    row.set_times([0.001, 0.002, 0.003])
    assert (row.median_ms, row.n_times) == (2.0, 3)
    assert (row.lower_quartile_ms, row.upper_quartile_ms) == (1.5, 2.5)
