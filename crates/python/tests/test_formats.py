"""Files of ``dentree find --format``, as other programs read them."""

import os
import subprocess

import duckdb
import pyarrow
import pyarrow.dataset
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pytest


@pytest.fixture
def written(disk, tmp_path):
    program = os.environ.get("DENTREE", "")
    if not os.path.exists(program):
        pytest.skip("needs the program dentree, built in the same profile")

    def write(form: str, *words: str):
        file = tmp_path / f"names.{form}"
        subprocess.run([program, "find", disk, *words, "--format", form, "-o", file], check=True)
        return file

    return write


def test_each_format_has_the_rows_of_the_table(image, written):
    table = pyarrow.table(image.table())
    parquet = pyarrow.parquet.read_table(written("parquet", "-mindepth", "1"))
    assert parquet.schema.equals(table.schema) and parquet.schema.metadata[b"dentree.schema"] == b"2"
    assert parquet.sort_by("path").equals(table.sort_by("path"))
    arrow = pyarrow.feather.read_table(written("arrow", "-mindepth", "1"))
    assert arrow.sort_by("path").equals(table.sort_by("path"))
    assert pyarrow.json.read_json(written("json", "-mindepth", "1")).num_rows == table.num_rows


def test_duckdb_counts_what_pyarrow_counts(written):
    parquet, csv = written("parquet", "-type", "f"), written("csv", "-type", "f")
    count = pyarrow.parquet.read_metadata(parquet).num_rows
    for source in (f"read_parquet('{parquet}')", f"read_csv('{csv}', header = true)"):
        assert duckdb.sql(f"select count(*) from {source} where type = 'f'").fetchall() == [(count,)]


def test_attributes_come_back_as_a_map(written):
    columns = ["--columns", "path,xattrs,sha256"]
    table = pyarrow.parquet.read_table(written("parquet", *columns))
    assert table.schema.field("xattrs").type == pyarrow.map_(pyarrow.string(), pyarrow.binary())
    assert table.num_rows == pyarrow.dataset.dataset(written("arrow", *columns), format="arrow").count_rows()


def test_three_engines_count_the_same_in_parquet(image, written):
    from datafusion import SessionContext

    file = written("parquet", "--columns", "path,type,size,mtime,xattrs,extents,sha256")
    pyarrow_counts = pyarrow.parquet.read_table(file, columns=["type", "size"]).group_by("type").aggregate([([], "count_all"), ("size", "sum")])
    expected = sorted((row["type"], row["count_all"], row["size_sum"]) for row in pyarrow_counts.to_pylist())
    question = "select type, count(*) as names, sum(size) as bytes from {} group by type order by type"
    context = SessionContext()
    context.register_parquet("names", str(file))
    batches = context.sql(question.format("names")).to_arrow_table().to_pylist()
    assert [(row["type"], row["names"], row["bytes"]) for row in batches] == expected
    rows = duckdb.sql(question.format(f"read_parquet('{file}')")).fetchall()
    assert [(kind, count, int(size)) for kind, count, size in rows] == expected
    assert sum(count for _, count, _ in expected) == pyarrow.table(image.table()).num_rows + 1, "and the root"
    nested = "select count(*) as runs from (select unnest(extents) from {})"
    runs = context.sql(nested.format("names")).to_arrow_table()["runs"][0].as_py()
    assert duckdb.sql(nested.format(f"read_parquet('{file}')")).fetchall() == [(runs,)] and runs > 8
