"""SimGCL on clients: two noisy views of the local items (after Yu et al., SIGIR 2022).

The recommender is that of `fedsgd`. To its loss is added the InfoNCE between two views of each local item, its row
with signed uniform noise. With one user on a client the same term for users has a single element and is zero, so there
is none: this is how CL4FedRec uses the method as a baseline.
"""

from __future__ import annotations

import jax
from jax import Array
from pydantic import Field

from coterie import fedsgd, nn
from coterie.algorithm import Info, Samples
from coterie.fedsgd import Private, Server, Upload, download, init_client, init_server, score, server_update

__all__ = ["Private", "Server", "Upload", "download", "init_client", "init_server", "score", "server_update"]

info = Info(
    name="simgcl",
    summary="fedsgd with noisy views of local items",
    paper="Are Graph Augmentations Necessary? Simple Graph Contrastive Learning for Recommendation (SIGIR 2022)",
    bibtex="""@inproceedings{yu2022graph,
  title = {Are Graph Augmentations Necessary? Simple Graph Contrastive Learning for Recommendation},
  author = {Yu, Junliang and Yin, Hongzhi and Xia, Xin and Chen, Tong and Cui, Lizhen and Nguyen, Quoc Viet Hung},
  booktitle = {Proceedings of the 45th International ACM SIGIR Conference},
  year = {2022}
}""",
    item_tables=("items",),
    upload="gradient",
    rounds=20,
)

Download = Server


class Config(fedsgd.Config):
    """Weight, temperature and noise are those of the authors' code."""

    item_weight: float = Field(0.5, ge=0, description="weight of the item term")
    temperature: float = Field(0.2, gt=0)
    noise: float = Field(0.1, gt=0, description="length of the noise")
    item_block: int = Field(1024, ge=2, description="local items that are compared with one another at a time")


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Take the gradient of the recommendation loss and the item term."""

    def contrast(key: Array, users: Array, public: Download, data: Samples) -> Array:
        local, real = nn.local_items(data, len(public.items))
        rows = public.items[local]
        first, second = (rows + fedsgd.signed_noise(each, rows, config.noise) for each in jax.random.split(key))
        return config.item_weight * fedsgd.item_contrast(first, second, real, config.temperature, config.item_block)

    return fedsgd.local_update(key, config, download, private, data, contrast)
