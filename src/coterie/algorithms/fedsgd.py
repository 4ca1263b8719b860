"""FedSGD: neural collaborative filtering by gradients, the "original" recommender of the robustness literature.

What travels, the model and the step of the server are those of `coterie.fedsgd`. Its settings are those of CL4FedRec's
experiments. With `embedding_dim=8 layers=[8,8] init_scale=0.01 user_optimiser=sgd server_optimiser=sgd redraw=false` it
is the recommender in which the A-hum attack was published (Rong et al., IJCAI 2022).

`uniformity` adds the penalty of CL4FedRec's proof of concept (eq. 12-13): the Frobenius norm of the correlations
between the dimensions of the local item rows, which spreads them evenly.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import fedsgd, nn
from coterie.algorithm import Info, Samples
from coterie.fedsgd import Private, Server, Upload, download, init_client, init_server, score, server_update

info = Info(
    name="fedsgd",
    summary="NCF or MF by gradients, one step of the server's optimiser at a time",
    paper="Communication-Efficient Learning of Deep Networks from Decentralized Data (AISTATS 2017)",
    bibtex="""@inproceedings{mcmahan2017communication,
  title = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  author = {McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and {Ag{\\"u}era y Arcas}, Blaise},
  booktitle = {Proceedings of the 20th International Conference on Artificial Intelligence and Statistics},
  year = {2017}
}""",
    item_tables=("items",),
    upload="gradient",
    rounds=20,
)

Download = Server
__all__ = ["Config", "Private", "Server", "Upload", "download", "init_client", "init_server", "score", "server_update"]


class Config(fedsgd.Config):
    """Adds the penalty of the proof of concept."""

    uniformity: float = Field(0.0, ge=0, description="weight of the correlation of item dimensions (eq. 13)")


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Take the gradient of the recommendation loss, and of the penalty if there is one."""

    def extra(key: Array, users: Array, public: Download, data: Samples) -> Array:
        local, real = nn.local_items(data, len(public.items))
        return config.uniformity * correlation(public.items[local], real)

    added = extra if config.uniformity else None
    return fedsgd.local_update(key, config, download, private, data, added)


def correlation(rows: Array, real: Array) -> Array:
    """Frobenius norm of the correlation matrix of the dimensions, over d (eq. 12), taken over the real rows."""
    count = jnp.maximum(real.sum(), 1)
    centred = (rows - (real @ rows / count)[None, :]) * real[:, None]
    scaled = centred / jnp.sqrt(jnp.sum(centred**2, 0) / count + 1e-12)[None, :]
    return jnp.sqrt(jnp.sum((scaled.T @ scaled / count) ** 2) + 1e-12) / rows.shape[1]
