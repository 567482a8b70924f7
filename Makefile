# What a newcomer types: `make run` and `make test`. Both install what they need.

.PHONY: run test check unit models model-dcache model-tests model-libs model-locks model-interleavings docs bench lab fuzz crash posix stress targets static deb wheel packages install

# Makes an ext4 image, walks it cold and warm, and says what to type next.
run:
	@tools/setup run
	cargo run --release --quiet -p dentree -- demo

# Everything that must hold before a change lands. All that does not hold is shown, not only the first.
test:
	@tools/setup test
	@$(MAKE) --no-print-directory --keep-going check docs unit models
	@echo "dentree: all checks passed"

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo check --quiet -p dentree --no-default-features
	cargo xtask tidy

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

unit:
	cargo test --workspace --quiet --no-fail-fast
	DENTREE_TEST_OVER=io_uring cargo test -p dentree --quiet --test mount_calls --test mount_handles --test mount_killed --test mount_rw

# The concurrent protocols: every interleaving of small cases, then random interleavings of the whole cache.
models: model-dcache model-tests model-libs model-locks model-interleavings

LOOM = RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release --quiet --no-fail-fast
model-dcache:
	$(LOOM) -p dentree-dcache --lib models
model-tests:
	$(LOOM) -p dentree-bufcache -p dentree-jbd2 -p dentree-mbcache --test loom
model-libs:
	$(LOOM) -p dentree-jbd2 -p dentree-ext4 --lib models
model-locks:
	$(LOOM) -p dentree-sync --lib models
	$(LOOM) -p dentree-lockmeter --no-default-features --test loom
model-interleavings:
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test --release --quiet \
		-p dentree-dcache --test interleavings

# Walks, find and mounts, every rival in the same run; tables on the terminal, rows in target/bench/.
bench:
	@tools/setup bench
	cargo build --release --quiet -p dentree
	cargo build --release --quiet -p dentree-lab
	cargo build --release --quiet -p dentree-fuse --example limit
	cargo bench --quiet -p dentree-lab --bench walk --bench step --bench find --bench tools --bench sources --bench onedir --bench mount

# The studies of name caches in short; a page with charts in report/.
lab:
	@tools/setup lab
	cargo build --release --quiet -p dentree
	cargo run --release --quiet --bin dentree-lab -- all --out report

# Each fuzz target for a while; needs a nightly toolchain and cargo-fuzz.
fuzz:
	tools/fuzz

# Cuts the power in tens of thousands of places, and lets the device fail at every request. Then MINUTES (ten) of the name
# cache against versions of the whole tree.
crash:
	@tools/setup test
	cargo test --release --quiet -p dentree-ext4 --test crash -- --ignored --nocapture
	cargo test --release --quiet -p dentree-ext4 --test directories one_directory -- --ignored --nocapture
	cargo test --release --quiet -p dentree-dcache --test oracle -- --ignored --nocapture

# What POSIX says of each system call, on the mount and on the kernel's: needs root.
posix:
	@tools/setup test
	cargo build --release --quiet -p dentree
	tools/posix

# fio --verify, fsx, dbench and stress-ng on mounts of images of several kinds, e2fsck behind each: needs root.
stress:
	@tools/setup stress
	cargo build --release --quiet -p dentree
	tools/stress

# Compiles for other systems and processors, as far as rustup has their standard libraries.
targets:
	@tools/setup run
	tools/targets

# The static program, its man pages, completions and SBOM; a Debian package of them: target/package/.
static deb:
	@tools/setup package
	tools/package $@

# The Python wheel, tried in a fresh environment.
wheel:
	@tools/setup wheel
	tools/wheel

# Installs the package in a bare Debian 12, the program in a bare BusyBox system, and runs the recipes in both: needs root.
packages: deb
	@tools/setup packages
	tools/packages

install:
	@tools/setup run
	cargo install --locked --path crates/dentree
