import gzip
import io
import os
import struct
import zipfile
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from openpyxl import Workbook
from openpyxl.chart import BarChart
from openpyxl.worksheet.formula import ArrayFormula
from pyarrow import parquet

from graphuq import memory
from graphuq.app.tables import text
from graphuq.app.tables.encode import fit_encoding
from graphuq.app.tables.read import read_table
from graphuq.app.tables.text import Marks
from graphuq.app.tables.write import write_csv


def written(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_columns_are_numbers_or_text(tmp_path):
    table = read_table(written(tmp_path, '\ufeffa,b, c \n1,x,"=1+1"\n2.5e1,,NA\nNaN,"<b>,y",z\n\n'))
    assert list(table.columns) == ["a", "b", "c"]
    assert np.array_equal(table.column("a"), [1, 25, np.nan], equal_nan=True)
    assert table.column("b").tolist() == ["x", "", "<b>,y"]
    assert table.column("c").tolist() == ["=1+1", "", "z"]
    assert table.text("a").tolist() == ["1", "25", ""]


def test_words_that_count_as_missing_are_remembered(tmp_path):
    table = read_table(written(tmp_path, "a,b\n1,none\nNA,x\n,\nna,none\n"))
    assert table.text("b").tolist() == ["", "x", "", ""]
    assert table.missing_words == {"a": {"NA": 1, "na": 1}, "b": {"none": 2}}


def test_tsv_and_other_separators(tmp_path):
    assert read_table(written(tmp_path, "a\tb\n1\t2\n", "t.tsv")).n_rows == 1
    assert list(read_table(written(tmp_path, "a;b\n1;2\n"), separator=";").columns) == ["a", "b"]
    with pytest.raises(ValueError, match="one character"):
        read_table(written(tmp_path, "a\n1\n"), separator="--")


def test_codes_stay_as_they_are_and_still_serve_as_numbers(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("id,x\n00017,1.5\n1234567890123456789,007\n")
    table = read_table(path)
    assert list(table.text("id")) == ["00017", "1234567890123456789"]
    np.testing.assert_allclose(fit_encoding(table, ["x"]).encode(table), [[1.5], [7.0]])


def test_whole_numbers_keep_their_digits(tmp_path):
    """Up to 2**53 as numbers, beyond as text: a float64 would change them, and two ids might become one."""
    exact, long = 2**53 - 1, 2**53 + 1
    np.savez(tmp_path / "t.npz", id=[exact, 10**15], code=[long, -long], top=np.array([2**64 - 1, 1], np.uint64))
    content = {"id": [exact, 10**15, None], "code": [long, -long, None]}
    parquet.write_table(pa.table(content), tmp_path / "t.parquet")
    for name in ("t.npz", "t.parquet"):
        table = read_table(tmp_path / name)
        assert table.column("id").dtype == np.float64
        assert table.text("id").tolist()[:2] == ["9007199254740991", "1000000000000000"]
        assert table.text("code").tolist()[:2] == ["9007199254740993", "-9007199254740993"]
        assert table.text("id").tolist()[2:] == table.text("code").tolist()[2:] == [""] * (table.n_rows - 2)
    top = read_table(tmp_path / "t.npz")
    assert top.text("top").tolist() == ["18446744073709551615", "1"]
    assert fit_encoding(top, ["top"]).encode(top).tolist() == [[2.0**64], [1.0]]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["3.1", " 3.2", "3.10", "NA", "-1.0"], ["3.1", "3.2", "3.10", "", "-1"]),  # -1 marks unlabeled rows
        (["1e3", "1000", "+1", "1.0"], ["1e3", "1000", "+1", "1.0"]),
        (["1.50", "1.5", "007"], ["1.50", "1.5", "007"]),
        (["1,50", "1,5", "2"], ["1,50", "1,5", "2"]),
        (["1.383.908", "304.288", "7"], ["1.383.908", "304.288", "7"]),
        (["1.0", "2.0", "", "-1.0"], ["1", "2", "", "-1"]),  # as pandas writes whole numbers in a column with gaps
        (["1,0", "2,0", "\u22121"], ["1", "2", "-1"]),
    ],
)
def test_names_that_look_like_numbers_stay_as_they_are_written(tmp_path, cells, names):
    path = written(tmp_path, "\n".join(["name;x", *(f"{cell};{k}" for k, cell in enumerate(cells))]))
    table = read_table(path, as_text=["name", None])
    assert table.text("name").tolist() == names
    assert table.column("x").tolist() == list(range(len(cells)))
    assert not any("taken as the same" in note for note in table.notes)
    np.savez(tmp_path / "t.npz", name=cells)
    if not any("," in cell for cell in cells):
        assert read_table(tmp_path / "t.npz", as_text=["name"]).text("name").tolist() == names


def test_whole_numbers_written_in_two_ways_are_one_name(tmp_path):
    table = read_table(written(tmp_path, "name,x\n1,1\n2.0,1.0\n1.0,1\n"), as_text=["name"])
    assert table.text("name").tolist() == ["1", "2", "1"]
    assert table.notes == ["Column 'name' holds '1' and '1.0', which are taken as the same."]


def test_names_in_spreadsheets_are_text_or_numbers(tmp_path):
    book = Workbook()
    for line in (["name", "code"], [3.1, "3.1"], [3.2, "3.10"], [4, "4.0"]):
        book.active.append(line)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx", as_text=["name", "code"])
    assert table.text("name").tolist() == ["3.1", "3.2", "4"]
    assert table.text("code").tolist() == ["3.1", "3.10", "4.0"]


def test_underscores_make_no_numbers(tmp_path):
    assert read_table(written(tmp_path, "a\n1_000\n")).column("a").tolist() == ["1_000"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.csv is empty"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3\n", "ragged: line 3 has 1 cells between commas, and the heading has 2"),
        (b"a,b\n1,2,3\n", "ragged: line 2 has 3 cells"),
        (
            b"a;b;c (1,2)\n1,5;2,5;x\n1;x;y;z\n",
            "ragged: line 3 has 4 cells between semicolons, and the heading has 3",
        ),
        (b"a,a\n1,2\n", "more than one column 'a'"),
        (b"column 2,\n1,2\n", "more than one column 'column 2'"),
        (b"a,b\n\x81\xfc,1\n", "neither UTF-8 .byte 0x81 is not. nor Windows-1252 text: save it as CSV in UTF-8"),
        (b"a,b\nx\0y,1\n", "not text: it holds zero bytes"),
        ("a,b\n1,2".encode("utf-16")[:-1], "begins as utf-16 text but does not go on so"),
        (b'a,b\n"1,2\n', "not well-formed"),
    ],
)
def test_bad_text_files(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, content))


def test_files_that_are_not_there_or_not_readable(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "f.csv").mkdir()
    for folder in (tmp_path / "f.csv", tmp_path):
        with pytest.raises(ValueError, match=f"{folder} is a folder"):
            read_table(folder)
    with pytest.raises(ValueError, match="CSV, TSV, Excel, Parquet and NPZ"):
        read_table(written(tmp_path, "x", "t.doc"))
    with pytest.raises(ValueError, match=r"old Excel file: save it as \.xlsx or CSV"):
        read_table(written(tmp_path, "x", "t.xls"))
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.npz")
    for name in ("pipe.csv", "pipe.npz"):
        with pytest.raises(ValueError, match="not a regular file: save what it gives"):
            read_table(tmp_path / name)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"]
)
def test_encodings(tmp_path, encoding):
    table = read_table(written(tmp_path, "straße,größe\nMüller,1\nJosé,2\n".encode(encoding)))
    assert list(table.columns) == ["straße", "größe"]
    assert table.column("straße").tolist() == ["Müller", "José"]
    guessed = encoding in ("cp1252", "latin-1")
    assert [note for note in table.notes if "was read as Windows-1252" in note] == table.notes[: int(guessed)]


@pytest.mark.parametrize(
    ("content", "name", "expected", "note"),
    [
        ("x;k\n1,5;a\n-0,25;b\n", "t.csv", [1.5, -0.25], "between semicolons"),
        ("x;k\n1,500;a\n2,250;b\n", "t.csv", [1.5, 2.25], "'1,500' are taken to have a decimal comma"),
        ("x;k\n1.234,5;a\n2;b\n", "t.csv", [1234.5, 2], "decimal comma"),
        ("x;k\n1,5e-3;a\nNA;b\n", "t.csv", [0.0015, np.nan], "decimal comma"),
        ('x,k\n"1,5",a\n"2,25",b\n', "t.csv", [1.5, 2.25], "decimal comma"),
        ("x\tk\n1\ta\n2\tb\n", "t.csv", [1, 2], "between tabs"),
        ("x|k\n1|a\n2|b\n", "t.csv", [1, 2], "between bars"),
        ("x,k\n1,a\n2,b\n", "t.txt", [1, 2], "between commas"),
        ("x;k\n1;a, b\n2;c\n", "t.csv", [1, 2], "between semicolons"),
    ],
)
def test_what_a_file_looks_like(tmp_path, content, name, expected, note):
    table = read_table(written(tmp_path, content, name))
    np.testing.assert_array_equal(table.column("x"), expected)
    assert table.column("k").dtype == object
    assert any(note in each for each in table.notes), table.notes


@pytest.mark.parametrize(
    "content",
    [
        "x,k\r1.5,a\r-2,b\r",
        "x,k\r\n1.5,a\n-2,b\r\n",
        "\ufeffx,k\n1.5,a\n-2,b\n",
        "sep=;\r\nx;k\r\n1,5;a\r\n-2;b\r\n",
        "sep=,\nx,k\n1.5,a\n-2,b\n",
        "x,k,\n1.5,a,\n-2,b, \n",
        "x,k\n1.5,a\n\u22122,b\n",
        '"x","k"\n"1.5","a"\n"-2","b"',
    ],
)
def test_the_same_table_as_others_write_it(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content.encode())
    table = read_table(tmp_path / "t.csv")
    assert table.column("x").tolist() == [1.5, -2]
    assert table.column("k").tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "name", "marks"),
    [
        ("x,k\n1.5,a\n", "t.csv", (",", ".")),
        ("x;k\n1,5;a\n", "t.csv", (";", ",")),
        ("x;k\n1;a\n", "t.csv", (";", ",")),
        ("x;k\n1.5;a\n", "t.csv", (";", ".")),
        ('x,k\n"1,5",a\n', "t.csv", (",", ",")),
        ("x|k\n1|a\n", "t.csv", ("|", ".")),
        ("x\tk\n1,5\ta\n", "t.tsv", (";", ",")),
        ("x\tk\n1.5\ta\n", "t.tsv", (",", ".")),
    ],
)
def test_answers_are_written_as_the_table_is(tmp_path, content, name, marks):
    table = read_table(written(tmp_path, content, name))
    assert table.marks[:3] == (*marks, "")
    numbers = [0.25, 1 - 1e-9, 3.5e-7, -1.125, 7]
    with (tmp_path / "back.csv").open("w", newline="") as file:
        write_csv(file, {"p": numbers, "k": ["a,b", "c;d", "e|f", "0,5", "\t"]}, table.marks)
    back = read_table(tmp_path / "back.csv")
    np.testing.assert_allclose(back.column("p"), numbers, rtol=1e-11)
    assert back.column("k").tolist()[:4] == ["a,b", "c;d", "e|f", "0,5"]


def test_numbers_that_could_be_two_are_not_guessed(tmp_path):
    """1,234 between commas may be a thousand and more; and between semicolons a 1.234 may be one too."""
    assert read_table(written(tmp_path, 'x,k\n"1,234",a\n')).column("x").tolist() == ["1,234"]
    assert read_table(written(tmp_path, "x;k\n1,5;a\n2.5;b\n")).column("x").tolist() == ["1,5", "2.5"]
    table = read_table(written(tmp_path, "k;z\n1.234;1\n327;2\n"))
    assert table.column("k").tolist() == [1.234, 327]
    assert (
        "Column 'k' holds numbers such as '1.234', taken as 1.234: if the point separates thousands"
        in table.notes[-1]
    )
    assert read_table(written(tmp_path, "k,z\n1.234,1\n2.500,2\n")).notes == []


def test_points_part_thousands_where_commas_are_decimal(tmp_path):
    """In the file, in the fit that it is written like, or where there are two of them in a number."""
    table = read_table(written(tmp_path, "x;k;z\n1,5;1.234;1.5\n0,5;327;2\n"))
    assert table.column("k").tolist() == [1234, 327]
    assert table.column("z").tolist() == [1.5, 2]  # none of thousands
    assert table.notes[-1] == "Points as in '1.234' in column 'k' are taken to separate thousands."
    path = written(tmp_path, "k;z\n1.234;1\n327;2\n")
    assert read_table(path, like=Marks(decimal=",")).column("k").tolist() == [1234, 327]
    assert read_table(path, like=Marks(decimal=".")).column("k").tolist() == [1.234, 327]
    assert read_table(path, like=Marks(decimal=",", points={"k": False})).column("k").tolist() == [1.234, 327]
    assert read_table(path, like=Marks(points={"k": True})).column("k").tolist() == [1234, 327]
    assert read_table(written(tmp_path, "k,z\n1.383.908,1\n304.288,2\n,3\n")).column("k")[:2].tolist() == [
        1383908,
        304288,
    ]


def test_points_are_read_alike_in_all_columns(tmp_path):
    """Whichever comes first: two points in one column settle it for the others."""
    for heading in ("area,pop", "pop,area"):
        rows = [("1.383.908", "12.000"), ("2.100.000", "45.500")]
        lines = [row if heading == "area,pop" else row[::-1] for row in rows]
        table = read_table(written(tmp_path, "\n".join([heading, *map(",".join, lines)]) + "\n"))
        assert table.column("pop").tolist() == [12000, 45500]
        assert dict(table.marks.points) == {"area": True, "pop": True}
        assert sum("taken to separate thousands" in note for note in table.notes) == 2
    assert read_table(written(tmp_path, "id,x\n005.113,1\n007.2,2\n")).column("id").tolist() == [
        "005.113",
        "007.2",
    ]


def test_excel(tmp_path):
    book = Workbook()
    sheet = book.active
    sheet.append(["name", "x", "born", "code", None])
    sheet.append(["Müller", 1.5, date(1990, 5, 1), 7, None])
    sheet.append(["=1+1", None, None, 2**53 - 1, None])
    sheet.append([None] * 5)
    book.create_sheet("others")
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert list(table.columns) == ["name", "x", "born", "code"]
    assert table.text("code").tolist() == ["7", "9007199254740991"]
    np.testing.assert_array_equal(table.column("x"), [1.5, np.nan])
    assert table.column("name").tolist() == ["Müller", ""]  # a formula that was never computed has no value
    assert table.notes == [
        "Formulas of t.xlsx that have no value are read as empty cells (1): if they should have one, open the file in a "
        "spreadsheet program and save it.",
        "t.xlsx has 2 sheets, and the first, 'Sheet', was read: --sheet names another.",
    ]
    assert table.marks[:3] == (",", ".", "\ufeff")  # Excel would take what has no mark for Windows-1252
    with pytest.raises(
        ValueError, match=r"no column 'kind': there are .* 2 sheets, and the first, 'Sheet', was read"
    ):
        table.column("kind")
    for content in (
        b"garbage",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600,
    ):  # the second is how a locked one begins
        with pytest.raises(
            ValueError, match=r"u\.xlsx is not an Excel file, is locked by a password, or is damaged"
        ):
            read_table(written(tmp_path, content, "u.xlsx"))


def test_formulas_of_several_cells_have_no_value_either(tmp_path):
    book = Workbook()
    for line in (["x", "twice"], [1, None], [2, None]):
        book.active.append(line)
    book.active["B2"] = ArrayFormula("B2:B3", "=A2:A3*2")
    book.save(tmp_path / "t.xlsx")
    assert (
        "Formulas of t.xlsx that have no value are read as empty cells (1)"
        in read_table(tmp_path / "t.xlsx").notes[0]
    )


def test_a_sheet_that_does_not_say_how_large_it_is(tmp_path):
    """As of openpyxl's write_only: its lines end where their cells do."""
    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    for line in (["x", "y"], [1], [2, 3], [4, 5, 6]):
        sheet.append(line)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    np.testing.assert_array_equal(table.column("x"), [1, 2, 4])
    np.testing.assert_array_equal(table.column("y"), [np.nan, 3, 5])
    np.testing.assert_array_equal(table.column("column 3"), [np.nan, np.nan, 6])


@pytest.mark.parametrize("said", [b"A1", b"A1:B3"])
def test_a_sheet_that_says_it_is_smaller_than_it_is(tmp_path, said):
    """As some programs write: cells outside of what they say are read."""
    book = Workbook()
    for line in (["x", "y", "z"], [1, 2, 3], [4, 5, 6], [7, 8, 9]):
        book.active.append(line)
    book.save(tmp_path / "whole.xlsx")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(tmp_path / "t.xlsx", "w") as changed:
        for name in whole.namelist():
            changed.writestr(
                name, whole.read(name).replace(b'dimension ref="A1:C4"', b'dimension ref="%s"' % said)
            )
    table = read_table(tmp_path / "t.xlsx")
    assert {name: column.tolist() for name, column in table.columns.items()} == {
        "x": [1, 4, 7], "y": [2, 5, 8], "z": [3, 6, 9]
    }  # fmt: skip


def test_charts_are_no_sheets_to_read(tmp_path):
    book = Workbook()
    book.create_chartsheet("chart", 0).add_chart(BarChart())
    book["Sheet"].append(["a", "b"])
    book["Sheet"].append([1, 2])
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert (list(table.columns), table.notes) == (["a", "b"], [])
    with pytest.raises(ValueError, match=r"t\.xlsx has no sheet 'chart': there are 'Sheet'"):
        read_table(tmp_path / "t.xlsx", sheet="chart")
    book.remove(book["Sheet"])
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match=r"t\.xlsx has no sheet with rows"):
        read_table(tmp_path / "t.xlsx")


def test_a_sheet_by_its_name(tmp_path):
    book = Workbook()
    book.active.append(["a note"])
    data = book.create_sheet("data")
    for line in (["", "kind", "x"], [0, "a", 1.5], [1, "b", 2.5]):
        data.append(line)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx", sheet="data")
    assert list(table.columns) == ["column 1", "kind", "x"]
    assert table.notes == ["Column 1 of t.xlsx has no name, and is called 'column 1'."]
    with pytest.raises(ValueError, match=r"t\.xlsx has no sheet 'Data': there are 'Sheet' and 'data'"):
        read_table(tmp_path / "t.xlsx", sheet="Data")
    with pytest.raises(ValueError, match=r"A sheet is one of an Excel file, and t\.csv is none"):
        read_table(written(tmp_path, "a,b\n1,2\n"), sheet="data")


def test_the_index_that_pandas_writes_has_a_name_to_drop_it_by(tmp_path):
    table = read_table(written(tmp_path, ",a,b\n0,x,2\n1,y,3\n"))
    assert list(table.columns) == ["column 1", "a", "b"]
    assert table.notes == ["Column 1 of t.csv has no name, and is called 'column 1'."]


def test_a_name_on_two_lines_can_be_typed_in_a_shell(tmp_path):
    table = read_table(written(tmp_path, '"wing length\n(mm)"," mass\u00a0\r\n [g]"\n61,18\n'))
    assert list(table.columns) == ["wing length (mm)", "mass [g]"]
    book = Workbook()
    book.active.append(["wing length\n(mm)", "mass"])
    book.active.append([61, 18])
    book.save(tmp_path / "t.xlsx")
    assert list(read_table(tmp_path / "t.xlsx").columns) == ["wing length (mm)", "mass"]


def test_blank_lines_before_the_heading(tmp_path):
    assert read_table(written(tmp_path, "\n\r\na,b\n1,2\n")).column("b").tolist() == [2]


def npz_with(path, name, content, *, flags=0, file_size=None):
    """A ZIP file with one member, whose description may lie."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr(name, content)
    if flags or file_size:
        raw = path.read_bytes()
        for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            place = raw.index(signature)
            raw = raw[: place + at] + struct.pack("<H", flags) + raw[place + at + 2 :]
            if file_size:
                size_at = place + (22 if at == 6 else 24)
                raw = raw[:size_at] + struct.pack("<I", file_size) + raw[size_at + 4 :]
        path.write_bytes(raw)
    return path


def npy(shape, body=b""):
    """An array file whose heading says any shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "<f8"})
    return file.getvalue() + body


@pytest.mark.parametrize(
    ("name", "content", "lies", "message"),
    [
        ("notes.txt", b"hello", {}, "it holds more than arrays: 'notes.txt'"),
        ("x.npy", b"hello", {}, "is damaged"),
        ("x.npy", npy((10**9,)), {}, "'x.npy' holds less than its heading says"),
        ("x.npy", npy((10**15, 10**15)), {}, "'x.npy' holds less than its heading says"),
        ("x.npy", npy((2,), b"\0" * 24), {}, "'x.npy' holds more than its heading says"),
        ("x.npy", npy((2,), b"\0" * 8), {}, "holds less than its heading says|is damaged"),
        ("x.npy", npy((2,), b"\0" * 16), {"flags": 1}, "it is encrypted"),
        ("x.npy", npy((2,), b"\0" * 16), {"file_size": 2**32 - 2}, "unpacked, it takes 4.3 GB|is damaged"),
    ],
)
def test_npz_members_that_are_not_what_they_should_be(tmp_path, monkeypatch, name, content, lies, message):
    monkeypatch.setattr("graphuq.memory.room", lambda: 1e9)
    path = npz_with(tmp_path / "t.npz", name, content, **lies)
    with pytest.raises(ValueError, match=f"t.npz is not an NPZ file, or is damaged: .*{message}|{message}"):
        read_table(path)


def test_the_nearest_column_is_suggested(tmp_path):
    table = read_table(written(tmp_path, "party,age\nx,1\n"))
    for near in ("Party", "PARTY", "partty"):
        with pytest.raises(ValueError, match=rf"no column '{near}': did you mean 'party'\?"):
            table.column(near)
    with pytest.raises(ValueError, match=r"no column 'partty': there are 'party' and 'age'"):
        table.expect("party", "partty")
    guessed = read_table(written(tmp_path, "party;age\nx;1,5\n"))
    assert len(guessed.notes) == 2
    with pytest.raises(ValueError, match=r"did you mean 'party'\?$"):
        guessed.column("Party")
    for far in ("zzzz", "lable", "park"):
        with pytest.raises(ValueError, match="there are 'party' and 'age'"):
            table.column(far)


def test_npz(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, X=np.ones((3, 2, 2), np.uint8), y=np.array([1, -1, 2]), name=np.array(["a", "b", "c"]))
    table = read_table(path)
    assert table.column("X").shape == (3, 2, 2)
    assert table.text("y").tolist() == ["1", "-1", "2"]
    assert table.text("name").tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="A separator is for text files"):
        read_table(path, separator=";")
    with pytest.raises(ValueError, match="where one value is needed"):
        table.text("X")


def test_text_packed_by_gzip(tmp_path):
    text = "a;b\n1,5;x\n2,5;y\n"
    plain, packed = written(tmp_path, text), written(tmp_path, gzip.compress(text.encode()), "u.CSV.gz")
    found, expected = read_table(packed), read_table(plain)
    assert [found.text(name).tolist() for name in "ab"] == [expected.text(name).tolist() for name in "ab"]
    assert found.marks == expected.marks
    assert read_table(written(tmp_path, gzip.compress(b"a\tb\n1\t2\n"), "t.tsv.gz")).n_rows == 1
    for content in (b"no gzip", packed.read_bytes()[:-9], packed.read_bytes()[:20] + b"\xff" * 20):
        with pytest.raises(ValueError, match=r"t\.csv\.gz is not a gzip file, or is damaged"):
            read_table(written(tmp_path, content, "t.csv.gz"))
    with pytest.raises(ValueError, match=r"gunzip -k .*t\.npz\.gz"):
        read_table(written(tmp_path, b"x", "t.npz.gz"))


def test_text_that_unpacks_to_more_than_memory_is_refused_before_it_is_there(tmp_path, monkeypatch):
    packed = written(tmp_path, gzip.compress(b"a\n" + b"1\n" * 500_000), "t.csv.gz")
    assert packed.stat().st_size < 10_000
    monkeypatch.setattr(memory, "room", lambda: 1_000_000.0)
    monkeypatch.setattr(text, "PIECE", 2**14)
    with pytest.raises(MemoryError, match=r"Reading t\.csv\.gz takes 1\.\d MB, but 1\.0 MB are free"):
        read_table(packed)


def test_npz_with_pickled_objects_is_refused_and_nothing_runs(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    path = tmp_path / "t.npz"
    np.savez(path, X=np.array([Trap(), 1], dtype=object))
    with pytest.raises(ValueError, match="pickled objects in 'X', which can run code"):
        read_table(path)
    assert not (tmp_path / "ran").exists()


def test_bad_npz(tmp_path):
    with pytest.raises(ValueError, match="not an NPZ file, or is damaged"):
        read_table(written(tmp_path, b"PK\x03\x04garbage", "t.npz"))
    np.savez(tmp_path / "u.npz", X=np.ones(3), y=np.ones(4))
    with pytest.raises(ValueError, match="differ in length: X 3, y 4"):
        read_table(tmp_path / "u.npz")
    np.savez(tmp_path / "v.npz", X=np.ones(3, complex))
    with pytest.raises(ValueError, match="neither numbers nor text"):
        read_table(tmp_path / "v.npz")
    np.savez(tmp_path / "half.npz", X=np.ones(2), y=["a", "b\ud83d"])
    with pytest.raises(
        ValueError, match=r"'y' of half\.npz holds '\\ud83d', half a letter, which no file can hold: remove it"
    ):
        read_table(tmp_path / "half.npz")
    np.savez(tmp_path / "w.npz", X=np.ones(3), y=np.array([["a"], [""], ["b"]]))
    with pytest.raises(ValueError, match=r"'y' of w\.npz must hold one text a row, got the shape \(3, 1\)"):
        read_table(tmp_path / "w.npz")


def test_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": [1, None], "word": ["a", None], "flag": [True, False]}), path)
    table = read_table(path)
    assert np.array_equal(table.column("x"), [1, np.nan], equal_nan=True)
    assert table.column("word").tolist() == ["a", ""]
    assert table.column("flag").tolist() == [1, 0]
    flags = [True, None, False]
    parquet.write_table(pa.table({"flag": flags, "x": flags}), path)
    table = read_table(path, as_text=["flag"])
    assert table.text("flag").tolist() == ["True", "", "False"]  # as in a CSV file
    assert table.text("x").tolist() == ["1", "", "0"]
    with pytest.raises(ValueError, match="not a Parquet file"):
        read_table(written(tmp_path, b"no parquet here", "u.parquet"))
