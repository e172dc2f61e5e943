"""Every leaf of a tall matrix gives the rows, blocks and Gram matrix of the array that it holds."""

import copy
import pickle
import sys

import numpy as np
import pytest

from graphuq import tall as talls
from graphuq.large.side_by_side import beside, first_one
from graphuq.tall import tall
from tests.decay import attempt, decayed

dask = pytest.importorskip("dask")
zarr = pytest.importorskip("zarr")
pyarrow = pytest.importorskip("pyarrow")

X = np.random.default_rng(0).standard_normal((97, 5))


def in_memory(folder):
    return tall(X)


def mapped(folder):
    np.save(folder / "x.npy", X)
    return tall(folder / "x.npy")


def part_of_a_file(folder):
    np.save(folder / "x.npy", np.vstack([X[:7], X, X[:5]]))
    return tall(np.load(folder / "x.npy", mmap_mode="r")[7:-5])


def some_columns_of_a_file(folder):
    np.save(folder / "x.npy", np.hstack([X[:, :1], X]))
    return tall(np.load(folder / "x.npy", mmap_mode="r")[:, 1:])


def in_zarr(folder):
    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(10, 3), dtype=float)
    array[:] = X
    return tall(folder / "x.zarr")


def in_dask(folder):
    import dask.array

    return tall(dask.array.from_array(X, chunks=((20, 3, 60, 14), (2, 3))))


def in_parquet(folder):
    for name, rows in (("a", X[:50]), ("b", X[50:])):
        table = pyarrow.table({f"x{k}": rows[:, k] for k in range(5)})
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=12)
    return tall(folder)


def made(folder):
    return tall(X / 2).mapped(lambda rows: 2 * rows, 5)


def side_by_side(folder):
    return beside(tall(X[:, :2]), X[:, 2:])


def remembered(folder):
    return tall(X).remembering(np.arange(6))


LEAVES = [
    in_memory, mapped, part_of_a_file, some_columns_of_a_file, in_zarr, in_dask, in_parquet, made, side_by_side,
    remembered,
]  # fmt: skip


@pytest.fixture(params=LEAVES, ids=lambda leaf: leaf.__name__)
def leaf(request, tmp_path, monkeypatch):
    import pyarrow.parquet  # noqa: F401

    monkeypatch.setattr(talls, "_BLOCK_BYTES", 11 * 5 * 8)  # eleven rows
    return request.param(tmp_path)


def test_rows_blocks_and_products(leaf):
    assert leaf.shape == X.shape
    assert len(leaf) == 97
    np.testing.assert_array_equal(leaf.rows(slice(13, 31)), X[13:31])
    np.testing.assert_array_equal(leaf.rows(np.array([96, 3, 50, 3])), X[[96, 3, 50, 3]])
    np.testing.assert_array_equal(leaf[::10], X[::10])
    np.testing.assert_array_equal(leaf[[5, 80], 1:3], X[[5, 80], 1:3])
    np.testing.assert_array_equal(np.asarray(leaf[:, 1:4]), X[:, 1:4])
    np.testing.assert_array_equal(np.asarray(leaf[:, 1:4][:, 1:]), X[:, 2:4])
    blocks = list(leaf.blocks())
    assert len(blocks) > 3
    np.testing.assert_array_equal(np.vstack([block for _, block in blocks]), X)
    assert [rows.start for rows, _ in blocks[1:]] == [rows.stop for rows, _ in blocks[:-1]]
    np.testing.assert_allclose(leaf.gram(), X.T @ X, atol=1e-12)
    np.testing.assert_allclose(leaf @ np.ones((5, 1)), X.sum(axis=1, keepdims=True), atol=1e-12)


def test_rows_are_selected_as_in_numpy(leaf):
    few = np.arange(97) < 4
    for index in (
        few, X[:, 0] > 0, few.tolist(), np.array([-1, 3, -97]), np.array([2, 0], np.uint8), [],
        slice(-5, None), slice(None, None, -3), slice(90, 200), slice(7, 2),
    ):  # fmt: skip
        np.testing.assert_array_equal(leaf[index], X[index])
        np.testing.assert_array_equal(leaf.rows(index), X[index])
        np.testing.assert_array_equal(leaf[index, 1:3], X[index, 1:3])
        np.testing.assert_array_equal(leaf[index, [3]], X[index, [3]])
        np.testing.assert_array_equal(leaf[index, -1], X[index, -1])
    for one in (2, -1, np.int64(60)):
        np.testing.assert_array_equal(leaf[one], X[one])
        np.testing.assert_array_equal(leaf[one, 1:3], X[one, 1:3])
        assert leaf[one, 4] == X[one, 4]
    np.testing.assert_array_equal(leaf.remembering(X[:, 0] > 0)[[-1, 5]], X[[-1, 5]])


def test_row_numbers_of_a_narrow_type_count_from_the_end_of_many_rows():
    many = np.arange(1000.0)[:, None]
    np.testing.assert_array_equal(tall(many)[np.array([-1, 100], np.int8)], [[999], [100]])


def test_rows_that_cannot_be_selected_are_refused_in_one_sentence(leaf):
    for index, told in (
        (np.ones(6, bool), r"A mask needs one entry for each of 97 rows, got the shape \(6,\)\."),
        (np.ones((97, 5), bool), r"A mask needs one entry for each of 97 rows, got the shape \(97, 5\)\."),
        (True, r"A mask needs one entry for each of 97 rows, got the shape \(\)\."),
        (97, r"There is no row 97 among 97 rows\."),
        ([3, -98], r"There is no row -98 among 97 rows\."),
        ([0.0, 1.0], r"a list of row numbers or a mask; got float64 of the shape \(2,\)\."),
        ([[0, 1]], r"a list of row numbers or a mask; got int64 of the shape \(1, 2\)\."),
    ):
        with pytest.raises(IndexError, match=told):
            leaf[index]


def test_dask_computes_the_same_blocks(leaf):
    found = dask.compute(*[leaf.source.lazy(rows) for rows in leaf.slices()], scheduler="synchronous")
    np.testing.assert_array_equal(np.vstack(found), X)
    (cut,) = dask.compute(leaf[:, 1:].source.lazy(slice(3, 9)), scheduler="synchronous")
    np.testing.assert_array_equal(cut, X[3:9, 1:])


def test_what_is_made_wide_of_narrow_rows_comes_in_blocks_that_fit():
    """500 numbers of each of 400,000 rows of two, as landmarks make, would take 1.6 GB at once."""
    made = tall(np.zeros((400_000, 2))).mapped(lambda rows: np.repeat(rows, 250, axis=1), 500)
    assert len(tall(np.zeros((400_000, 2))).slices()) == 1
    lengths = np.diff(made.bounds)
    assert (made.bounds[0], made.bounds[-1]) == (0, 400_000)
    assert lengths.min() > 0
    assert 8 * 500 * lengths.max() <= 2**27
    assert made.rows(made.slices()[-1]).shape == (lengths[-1], 500)


@pytest.mark.parametrize("make", [mapped, part_of_a_file, some_columns_of_a_file])
def test_a_file_goes_to_another_process_without_what_it_holds(make, tmp_path):
    leaf = make(tmp_path)
    sent = pickle.dumps(leaf)
    assert len(sent) < 1000 < X.nbytes
    again = pickle.loads(sent)  # noqa: S301
    np.testing.assert_array_equal(np.asarray(again), X)
    np.testing.assert_array_equal(np.asarray(copy.deepcopy(again)), X)  # and to a third


def test_two_matrices_made_of_the_same_rows_are_made_together():
    read = []

    def twice(rows):
        read.append(len(rows))
        return 2 * rows

    given = tall(X)
    both = beside(given.mapped(twice, 5), first_one(given.mapped(np.negative, 5)))
    expected = np.hstack([2 * X, np.ones((97, 1)), -X[:, 1:]])
    np.testing.assert_array_equal(both.rows(slice(0, 97)), expected)
    assert read == [97]
    np.testing.assert_array_equal(first_one(X).rows(slice(0, 97))[:, 0], 1)
    assert X[0, 0] != 1
    np.testing.assert_array_equal(np.asarray(first_one(given[:, 2:])), np.hstack([np.ones((97, 1)), X[:, 3:]]))
    assert X[0, 2] != 1


def test_what_cannot_be_read_is_refused_with_a_sentence(tmp_path):
    import dask.array
    import pyarrow.parquet

    with pytest.raises(TypeError, match=r"X must hold real numbers, got <U1"):
        tall(np.array([["a", "b"]]))
    with pytest.raises(ValueError, match=r"one row a node, got the shape \(5,\)"):
        tall(np.zeros(5))
    with pytest.raises(FileNotFoundError, match="There is no file or folder"):
        tall(tmp_path / "none.npy")
    (tmp_path / "x.txt").write_text("1 2")
    with pytest.raises(ValueError, match=r"an NPY file, a Zarr folder, a Parquet file"):
        tall(tmp_path / "x.txt")

    np.save(tmp_path / "x.npy", X)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"x\.npy is not an NPY file of numbers, or ends before its last row"):
        tall(tmp_path / "x.npy")

    frame = dask.array.from_array(X, chunks=(20, 5))
    with pytest.raises(ValueError, match=r"compute_chunk_sizes"):
        tall(frame[frame[:, 0] > 0])

    with pytest.raises(TypeError, match=r"to_dask_array\(lengths=True\)"):
        tall(type("Frame", (), {"__module__": "dask.dataframe"})())

    table = pyarrow.table({"a": [1.0, 2.0], "name": ["x", "y"]})
    (tmp_path / "strings").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "strings" / "a.parquet")
    told = r"Column 'name' of .*a\.parquet holds string, and features are numbers: .* write it without those that are not"
    with pytest.raises(TypeError, match=told):
        tall(tmp_path / "strings")
    (tmp_path / "ragged").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0, 2.0]}), tmp_path / "ragged" / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"b": [1.0, 2.0]}), tmp_path / "ragged" / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet has other columns than .*a\.parquet"):
        tall(tmp_path / "ragged")
    short = tmp_path / "ragged" / "b.parquet"
    short.write_bytes(short.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"b\.parquet is not a Parquet file, or ends early"):
        tall(tmp_path / "ragged")


def test_a_zarr_array_that_ends_early_is_refused(tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(100, 5), chunks=(10, 5), dtype=float)
    array[:70] = X[:70]
    with pytest.raises(ValueError, match=r"x\.zarr holds 7 of its 10 chunks.*not written to its end"):
        tall(tmp_path / "x.zarr")
    zarr.create_group(tmp_path / "group.zarr").create_array("inner", shape=(3, 3), dtype=float)
    with pytest.raises(ValueError, match=r"a Zarr group, not an array: .*\(inner\)"):
        tall(tmp_path / "group.zarr")
    with pytest.raises(ValueError, match=r"neither Parquet files nor a Zarr array"):
        tall(tmp_path)


def test_a_damaged_chunk_of_a_zarr_array_is_told(tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(100, 5), chunks=(10, 5), dtype=float)
    array[:] = np.ones((100, 5))
    chunk = tmp_path / "x.zarr" / "c" / "3" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-5])
    leaf = tall(tmp_path / "x.zarr")
    np.testing.assert_array_equal(leaf[:30], 1)
    with pytest.raises(ValueError, match=r"Rows of .*x\.zarr cannot be read, a chunk is damaged"):
        leaf.rows(slice(25, 45))


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.parquet"])
def test_stores_that_decayed_are_read_or_refused_in_one_sentence(tmp_path, name):
    """Nothing tells that a number has changed which its writer gave no checksum; but nothing worse comes of it."""
    path = tmp_path / name
    if name == "x.npy":
        np.save(path, X[:20])
    elif name == "x.parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"a": X[:20, 0], "b": X[:20, 1]}), path)
    else:
        zarr.create_array(path, shape=(20, 2), chunks=(10, 2), dtype=float)[:] = X[:20, :2]
    for file in [path] if path.is_file() else [path / "zarr.json", path / "c/1/0"]:
        content, refused = file.read_bytes(), 0
        for each in decayed(content):
            file.write_bytes(each)
            found, told = attempt(lambda store: tall(store).rows(np.arange(len(tall(store)))), path)
            refused += found is None
            assert found is not None or (name in told and "\n" not in told)
        file.write_bytes(content)
        assert refused > 40


@pytest.mark.parametrize("absent", ["pyarrow", "pyarrow.parquet"])
def test_parquet_files_need_no_more_than_its_library(absent, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, absent, None)
    (tmp_path / "x.parquet").write_text("anything")
    with pytest.raises(ImportError, match=r"Parquet files need pyarrow: pip install 'graphuq\[parquet\]'"):
        tall(tmp_path / "x.parquet")


def test_missing_numbers_of_parquet_are_nan(tmp_path):
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.table({"a": [1, None, 3], "b": [True, False, True]}), tmp_path / "x.parquet"
    )
    np.testing.assert_array_equal(tall(tmp_path / "x.parquet").rows(slice(0, 3)), [[1, 1], [np.nan, 0], [3, 1]])


def test_a_matrix_that_does_not_fit_is_not_read(monkeypatch):
    monkeypatch.setattr("graphuq.memory.room", lambda: 1000)
    with pytest.raises(MemoryError, match=r"A matrix of 97 rows takes 0\.0 MB"):
        np.asarray(tall(X))


def test_wide_matrices_side_by_side_come_in_short_blocks():
    """Blocks of the first, which is thin, would take all rows of the second at once."""
    both = beside(tall(np.zeros((200_000, 4))), tall(np.zeros((200_000, 150))))
    assert max(np.diff(both.bounds)) * 154 * 8 <= 2**27
    assert both.bounds[-1] == 200_000
