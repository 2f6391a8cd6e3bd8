import torch

from gnnforce.derivatives.loop import loop_pull_back


def test_one_pass_an_output(monkeypatch):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    calls = []
    original = torch.autograd.grad

    def counted(*args, **options):
        calls.append(options["retain_graph"])
        return original(*args, **options)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    rows = loop_pull_back(x**2, x, torch.eye(3), False)
    assert rows.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 6]]
    assert calls == [True, True, False]  # the last one frees the graph
