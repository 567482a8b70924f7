//! The tests in Python beside this file, by pytest in a virtual environment of their own, with the
//! module that was just built. They skip, with the reason, where Python or its packages cannot be
//! had.

use dentree_testing::{S3_KEYS, serve_s3_at};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests and the module's faces need. Versions of their major number.
const PACKAGES: [&str; 9] = [
    "pytest>=8,<10",
    "fsspec>=2024.2",
    "aiohttp>=3.9",
    "pyarrow>=15",
    "datafusion>=40",
    "duckdb>=1",
    "pandas>=2",
    "dask[distributed]>=2024.1",
    "mypy>=1.10",
];

/// The package as an installed one: its Python files beside the module.
fn package(dir: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/dentree");
    let package = dir.join("dentree");
    fs::create_dir_all(&package).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() {
            fs::copy(&file, package.join(file.file_name().unwrap())).unwrap();
        }
    }
    let built = env::current_exe().unwrap();
    let module = built.parent().unwrap().join("lib_dentree.so");
    fs::copy(module, package.join("_dentree.abi3.so")).unwrap();
    // What an installer makes of the entry point.
    let info = dir.join("dentree-0.1.0.dist-info");
    fs::create_dir_all(&info).unwrap();
    fs::write(info.join("METADATA"), "Metadata-Version: 2.1\nName: dentree\nVersion: 0.1.0\n").unwrap();
    fs::write(info.join("entry_points.txt"), "[fsspec.specs]\next4 = dentree.fsspec:Ext4FileSystem\n")
        .unwrap();
}

/// The environment's Python, or why there is none.
fn python(dir: &Path) -> Result<PathBuf, String> {
    let done = |command: &mut Command| {
        let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    let environment = dir.join("environment");
    let python = environment.join("bin/python");
    if !python.exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&environment))
            .or_else(|_| done(Command::new("virtualenv").arg(&environment)))?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    done(Command::new(&python).args(install).args(PACKAGES))?;
    Ok(python)
}

/// The S3 server of the tests of the fleet: they start it as a process, end it, and start it again.
#[test]
#[ignore = "a server, which test_fleet.py starts"]
fn serves_s3() {
    let (Some(root), Ok(port)) = (env::var_os("S3_ROOT"), env::var("S3_PORT")) else { return };
    serve_s3_at(Path::new(&root), port.parse().unwrap());
    loop {
        std::thread::park();
    }
}

#[test]
fn images_behave_in_python_as_files_paths_and_tables_do() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let python = match python(&place) {
        Ok(python) => python,
        Err(why) => return println!("skipped: no virtual environment with pip: {}", why.trim()),
    };
    let dir = tempfile::tempdir().unwrap();
    package(dir.path());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut run = Command::new(&python);
    run.args(["-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(here.join("tests"));
    run.arg("--basetemp").arg(dir.path().join("pytest"));
    let modules = env::join_paths([dir.path(), &here.join("examples/fleet")]).unwrap();
    run.env("PYTHONPATH", modules).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(dir.path());
    // The program, where it was built beside.
    run.env("DENTREE", env::current_exe().unwrap().ancestors().nth(2).unwrap().join("dentree"));
    run.env("S3_SERVER", env::current_exe().unwrap()).envs(S3_KEYS);
    assert!(run.status().unwrap().success());
    let mut types = Command::new(&python);
    types.args([
        "-m",
        "mypy",
        "--strict",
        "--ignore-missing-imports",
        "--allow-subclassing-any",
        "--cache-dir",
    ]);
    types.arg(place.join("mypy")).arg(dir.path().join("dentree"));
    assert!(types.status().unwrap().success());
}
