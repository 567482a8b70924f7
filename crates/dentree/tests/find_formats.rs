//! `dentree find --format`: what is found as Parquet, Arrow, CSV and JSON, beside find's own
//! `-printf`.
#![cfg(feature = "formats")]

mod common;
mod oracle;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use common::{Image, dentree, from_a_terminal, succeeds, text};
use oracle::makes_files_without_names;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

/// Columns of every type.
const COLUMNS: [&str; 12] =
    ["path", "name", "inode", "type", "mode", "uid", "size", "nlink", "mtime", "target", "xattrs", "sha256"];

/// An image with files, links, attributes, and names that formats have to escape.
fn image(dir: &Path) -> String {
    let (tree, image) = (dir.join("tree"), dir.join("disk.img").to_str().unwrap().to_owned());
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for name in ["plain", "comma,and \"quote\"", "a/new\nline", "a/b/é", "a/b/= sum", "null"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("plain"), tree.join("a/again")).unwrap();
    symlink("../plain", tree.join("a/link")).unwrap();
    fs::set_permissions(tree.join("plain"), fs::Permissions::from_mode(0o4751)).unwrap();
    succeeds(["mkfs", &image, "--from", tree.to_str().unwrap(), "--size", "16M"]);
    succeeds(["xattr", "set", &format!("{image}:/plain"), "user.one", "1, \"2\""]);
    succeeds(["xattr", "set", &format!("{image}:/plain"), "user.two", "0xff00"]);
    succeeds(["touch", "-d", "2001-09-09 01:46:40.123456789", &format!("{image}:/a/link")]);
    image
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as text: times in nanoseconds, attributes in hexadecimal digits.
fn cell(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) {
        return String::new();
    }
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Timestamp(_, zone) => {
            assert_eq!(zone.as_deref(), Some("UTC"));
            array.as_primitive::<TimestampNanosecondType>().value(row).to_string()
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (names, values) =
                (entries.column(0).as_string::<i32>(), entries.column(1).as_binary::<i32>());
            (0..entries.len()).map(|at| format!("{}={};", names.value(at), hex(values.value(at)))).collect()
        }
        other => panic!("{other}"),
    }
}

fn rows(batches: impl IntoIterator<Item = RecordBatch>) -> Vec<Vec<String>> {
    let row = |batch: &RecordBatch, row| batch.columns().iter().map(|array| cell(array, row)).collect();
    batches
        .into_iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |at| row(&batch, at)).collect::<Vec<_>>())
        .collect()
}

/// Text of CSV and JSON as [`cell`] has it.
fn textual(column: &str, text: &str) -> String {
    match column {
        "mtime" => text.parse::<jiff::Timestamp>().unwrap().as_nanosecond().to_string(),
        "xattrs" => {
            let map: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
            map.iter().map(|(name, value)| format!("{name}={};", value.as_str().unwrap())).collect()
        }
        _ => text.to_owned(),
    }
}

fn csv_rows(file: &Path) -> Vec<Vec<String>> {
    let fields: Vec<_> = COLUMNS.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    let builder = arrow_csv::ReaderBuilder::new(Arc::new(Schema::new(fields))).with_header(true);
    let reader = builder.build(File::open(file).unwrap()).unwrap();
    let textual =
        |row: Vec<String>| COLUMNS.iter().zip(row).map(|(name, text)| textual(name, &text)).collect();
    rows(reader.map(Result::unwrap)).into_iter().map(textual).collect()
}

fn json_rows(file: &Path) -> Vec<Vec<String>> {
    let objects = serde_json::Deserializer::from_reader(File::open(file).unwrap()).into_iter();
    let row = |object: serde_json::Value| {
        let value = |name: &&str| match &object[name] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => textual(name, text),
            other => textual(name, &other.to_string()),
        };
        COLUMNS.iter().map(value).collect()
    };
    objects.map(|object| row(object.unwrap())).collect()
}

#[test]
fn four_formats_have_equal_rows_which_are_those_of_printf() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let file = |format: &str| dir.path().join(format!("out.{format}"));
    for format in ["parquet", "arrow", "csv", "json"] {
        let (out, columns) = (file(format), COLUMNS.join(","));
        let words = ["find", &image, "--sort", "--columns", &columns, "!", "-name", "null"];
        assert!(
            succeeds(words.into_iter().chain(["--format", format, "-o", out.to_str().unwrap()])).is_empty()
        );
    }
    let parquet = ParquetRecordBatchReaderBuilder::try_new(File::open(file("parquet")).unwrap()).unwrap();
    assert_eq!(parquet.schema().metadata()["dentree.schema"], "2");
    let parquet = rows(parquet.build().unwrap().map(Result::unwrap));
    let arrow = arrow_ipc::reader::FileReader::try_new(File::open(file("arrow")).unwrap(), None).unwrap();
    assert_eq!(arrow.schema().metadata()["dentree.schema"], "2");
    assert_eq!(rows(arrow.map(Result::unwrap)), parquet);
    assert_eq!(csv_rows(&file("csv")), parquet);
    assert_eq!(json_rows(&file("json")), parquet);

    let format = "%p\\t%f\\t%i\\t%y\\t%m\\t%U\\t%s\\t%n\\t%T@\\t%l\\0";
    let printed = text(&succeeds(["find", &image, "--sort", "!", "-name", "null", "-printf", format]));
    let expected: Vec<Vec<&str>> =
        printed.split_terminator('\0').map(|line| line.split('\t').collect()).collect();
    let shown = |row: &Vec<String>| {
        let (mode, mtime): (u32, i64) = (row[4].parse().unwrap(), row[8].parse().unwrap());
        let time = format!("{}.{:09}0", mtime / 1_000_000_000, mtime % 1_000_000_000);
        let mut row: Vec<String> = row[..10].to_vec();
        (row[4], row[8]) = (format!("{:o}", mode & 0o7777), time);
        row
    };
    assert_eq!(parquet.iter().map(shown).collect::<Vec<_>>(), expected);
    let plain = parquet.iter().find(|row| row[0] == "/plain").unwrap();
    assert_eq!(plain[10], "user.one=312c20223222;user.two=ff00;");
    let again = parquet.iter().find(|row| row[0] == "/a/again").unwrap();
    assert!(plain[11].len() == 64 && again[11] == plain[11]);
}

#[test]
fn rows_of_several_images_name_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let other = dir.path().join("other.img").to_str().unwrap().to_owned();
    fs::copy(&image, &other).unwrap();
    let places = [format!("{image}:/a"), format!("{other}:/a")];
    let words = ["find", "--sort", "--columns=image,path", &places[0], &places[1], "-type", "l"];
    let out = text(&succeeds(words.into_iter().chain(["--format", "csv", "-o", "-"])));
    assert_eq!(out, format!("image,path\n{image},/a/link\n{other},/a/link\n"));
    // A header without rows, too.
    let none = succeeds(["find", &image, "-false", "--format", "csv", "--columns", "path,size"]);
    assert_eq!(text(&none), "path,size\n");
}

#[test]
fn a_pipe_gets_arrow_as_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let out = succeeds(["find", &image, "-type", "f", "--format", "arrow"]);
    let reader = arrow_ipc::reader::StreamReader::try_new(&out[..], None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 7);
}

#[test]
fn a_row_is_there_of_what_the_whole_expression_finds() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let out = dir.path().join("out.csv");
    let words = ["find", &image, "-name", "plain", "-print", "-o", "-name", "link"];
    let tail = ["--columns", "path", "--sort", "--format", "csv", "-o", out.to_str().unwrap()];
    assert_eq!(text(&succeeds(words.into_iter().chain(tail))), "/plain\n");
    assert_eq!(fs::read_to_string(&out).unwrap(), "path\n/a/link\n/plain\n");
    // On standard output the rows are alone.
    let mixed = dentree(["find", &image, "-print", "--format", "csv"]);
    assert!(mixed.status.code() == Some(1) && mixed.stdout.is_empty());
    assert!(text(&mixed.stderr).contains("name a file by -o"), "{}", text(&mixed.stderr));
}

#[test]
fn a_name_whose_inode_is_damaged_has_a_row() {
    let image = Image::new(16, &["-t", "ext4"]);
    image.debugfs(&["mkdir dir", "cd dir", "mknod pipe p", "set_inode_field pipe mode 0"]);
    let words = ["find", &image.at("/dir"), "--sort", "--format", "csv", "--columns", "path,type,mode,size"];
    let output = dentree(words);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("/dir/pipe"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "path,type,mode,size\n/dir,d,16877,1024\n/dir/pipe,p,,\n");
}

#[test]
fn a_search_that_does_not_end_leaves_the_old_file_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let (work, temporary) = (dir.path().join("work"), dir.path().join("temporary"));
    fs::create_dir(&work).unwrap();
    fs::create_dir(&temporary).unwrap();
    if !makes_files_without_names(&work) {
        return;
    }
    let out = work.join("out.parquet");
    fs::write(&out, "old").unwrap();
    let listed = || fs::read_dir(&work).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    for signal in ["INT", "TERM", "KILL"] {
        let kill = format!("kill -{signal} $PPID");
        let mut find = from_a_terminal();
        find.args(["find", &image, "-name", "b", "-exec", "sh", "-c", &kill, ";"]);
        find.args(["--format", "parquet", "-o"]).arg(&out).env("TMPDIR", &temporary);
        let output = find.output().unwrap();
        assert!(!output.status.success(), "{signal}");
        assert_eq!((fs::read_to_string(&out).unwrap(), listed().len()), ("old".into(), 1), "{signal}");
    }
    let out = out.to_str().unwrap();
    for [option, wrong] in [["--columns", "path,nothing"], ["-size", "x"]] {
        let failed = dentree(["find", &image, option, wrong, "--format", "csv", "-o", out]);
        assert_eq!(failed.status.code(), Some(1), "{option}");
    }
    assert_eq!(listed().len(), 1);
    let itself = dentree(["find", &image, "--format", "csv", "-o", &image]);
    assert!(itself.status.code() == Some(1) && text(&itself.stderr).contains("the image that was searched"));
    // A link stays, what it leads to is replaced; a device is written to.
    let link = dir.path().join("link");
    symlink("work/out.parquet", &link).unwrap();
    succeeds(["find", &image, "--format", "csv", "-o", link.to_str().unwrap()]);
    assert!(link.is_symlink() && fs::read_to_string(out).unwrap().starts_with("image,path,"));
    succeeds(["find", &image, "--format", "parquet", "-o", "/dev/null"]);
    assert!(!Path::new("/dev/null").is_file());
}
