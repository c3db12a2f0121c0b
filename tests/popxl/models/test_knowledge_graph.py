"""Embeddings of a knowledge graph: entities divided over replicas, rows exchanged all to all, updates of rows only.

Each replica scores triples whose heads it owns; their tails come from all replicas. The reference is PyTorch.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops

torch = pytest.importorskip("torch")
REPLICAS, ROWS, WIDTH, RELATIONS, EACH, WRONG, RATE, STEPS = 4, 10, 6, 5, 3, 4, 0.1, 3
"""Rows of a replica's entities; triples for each pair of replicas; wrong tails."""
TRIPLES, MARGIN = REPLICAS * EACH, 2.0


class Loss(addons.Module):
    """Distances of head + relation to the tail are small, to wrong tails large."""

    def build(self, heads, relations, tails, wrong):
        table = self.add_variable_input("relations", partial(np.zeros, (RELATIONS, WIDTH)), heads.dtype)
        x = heads + ops.gather(table, relations)
        near = ops.sum(ops.abs(x - tails), -1)
        far = ops.sum(ops.abs(x.reshape((TRIPLES, 1, WIDTH)) - wrong.reshape((1, WRONG, WIDTH))), -1)
        softplus = lambda z: ops.log(ops.exp(z) + 1.0)  # noqa: E731
        return ops.mean(softplus(near - MARGIN)) + ops.mean(softplus(MARGIN - far))


def program():
    ir = popxl.Ir(replication=REPLICAS)
    ir.num_host_transfers = STEPS
    with ir.main_graph, popxl.in_sequence():
        some, few, floats = ((TRIPLES,), popxl.uint32), ((WRONG,), popxl.uint32), popxl.float32
        inputs = addons.InputStreams(heads=some, relations=some, tails=some, wrong=few)
        outputs = addons.OutputStreams(loss=((), floats))
        own = ir.replica_grouping(group_size=1)
        entities = popxl.variable(np.zeros((REPLICAS, ROWS, WIDTH)), floats, name="entities", replica_grouping=own)
        number = popxl.variable(np.arange(REPLICAS).reshape(-1, 1), popxl.uint32, name="number", replica_grouping=own)
        rows = popxl.TensorSpec((TRIPLES, WIDTH), floats)
        specs = (rows, inputs.relations.spec, rows, popxl.TensorSpec((WRONG, WIDTH), floats))
        factories, graph = Loss().create_graph(*specs)
        x, _, y, z = graph.graph.inputs[:4]
        gradient = addons.autodiff(graph, grads_required=[x, y, z, *graph.args.tensors])
        variables = factories.init()

        heads, relations, tails, wrong = (ops.host_load(s) for s in inputs)
        mine, sent, wrong_rows = (ops.gather(entities, i) for i in (heads, tails, wrong))
        every = ops.collectives.replicated_all_gather(sent.reshape((1, REPLICAS, EACH, WIDTH)))  # (from, to, ...)
        received = ops.dynamic_slice(every, number, [1], [1], True).reshape(rows.shape)
        site = graph.bind(variables).call_with_info(mine, relations, received, wrong_rows)
        ops.host_store(outputs.loss, site.outputs[0])
        dx, dy, dz, dr = gradient.call(popxl.constant(1.0), args=gradient.grad_graph_info.inputs_dict(site))

        back = ops.init((REPLICAS, REPLICAS, EACH, WIDTH), floats, "back", "zero")
        ops.dynamic_update_(back, number, dy.reshape((REPLICAS, 1, EACH, WIDTH)), [1], [1], True)
        of_sent = ops.collectives.replicated_reduce_scatter(back, "add").reshape(rows.shape)
        for where, d in ((heads, dx), (tails, of_sent), (wrong, dz)):
            ops.var_updates.sparse_accumulate_(entities, d * -RATE, ops.cast(where, popxl.int32))
        ops.scaled_add_(variables.relations, ops.collectives.replicated_all_reduce(dr, "mean"), b=-RATE)
    addons.repeat_graph(ir.main_graph, STEPS)
    state = addons.NamedTensors(entities=entities, relations=variables.relations)
    return addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")


def losses(entities, table, heads, relations, tails, wrong):
    """Of each replica."""
    sent = torch.stack([entities[r][tails[r]] for r in range(REPLICAS)]).reshape(REPLICAS, REPLICAS, EACH, WIDTH)
    for r in range(REPLICAS):
        x = entities[r][heads[r]] + table[relations[r]]
        near = (x - sent[:, r].reshape(TRIPLES, WIDTH)).abs().sum(-1)
        far = (x[:, None] - entities[r][wrong[r]]).abs().sum(-1)
        softplus = torch.nn.functional.softplus
        yield softplus(near - MARGIN).mean() + softplus(MARGIN - far).mean()


def test_entities_and_relations_learn_as_in_pytorch():
    session, rng = program(), np.random.default_rng(0)
    names = session.state.to_dict()
    start = {n: rng.normal(size=t.shape_on_host).astype(np.float32) for n, t in names.items()}
    limits = {"heads": ROWS, "relations": RELATIONS, "tails": ROWS, "wrong": ROWS}
    fed = {
        s: rng.integers(0, limit, (STEPS, REPLICAS, *s.shape)).astype(np.uint32)
        for s, limit in zip(session.inputs, limits.values(), strict=True)
    }
    with session:
        session.write_variables_data({t: start[n] for n, t in names.items()})
        found = session.run(fed)[session.outputs.loss]
    entities, table = (torch.tensor(start[n], requires_grad=True) for n in ("entities", "relations"))
    optimizer = torch.optim.SGD([{"params": [entities]}, {"params": [table], "lr": RATE / REPLICAS}], lr=RATE)
    for step in range(STEPS):
        expected = torch.stack([*losses(entities, table, *(torch.tensor(x[step].astype(int)) for x in fed.values()))])
        np.testing.assert_allclose(found[step], expected.detach(), rtol=1e-4)
        optimizer.zero_grad()
        expected.sum().backward()
        optimizer.step()
    for name, weight in (("entities", entities), ("relations", table)):
        np.testing.assert_allclose(session.get_tensor_data(names[name]), weight.detach(), atol=2e-5, err_msg=name)
