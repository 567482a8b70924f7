//! The same operations on a [`Vfs`] over memory and in a directory of the kernel return the same
//! errno and leave the same tree: for root and an ordinary user.

mod common;

use common::kernel::{Kernel, become_user};
use common::ops::{NOBODY, Op, any_ops};
use common::{model, tree};
use dentree_vfs::{Budgets, Identity, MemoryFs, Vfs};
use proptest::test_runner::{Config, TestRunner};

fn compare(caller: &Identity, cases: u32) {
    let caller = caller.clone();
    // Another thread takes the user's credentials after the setup.
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    TestRunner::new(config)
        .run(&any_ops(60), |ops| {
            let kernel = Kernel::new();
            // Small caches, for evictions.
            let vfs = Vfs::with_budgets(MemoryFs::default(), Budgets { names: 0, inodes: 2000 }).unwrap();
            common::ops::prepare(&kernel, &vfs);
            let outcome = std::thread::scope(|scope| {
                let run = scope.spawn(|| {
                    become_user(&caller);
                    for (index, op) in
                        ops.iter().enumerate().filter(|(_, op)| op.is_comparable(&vfs, &caller))
                    {
                        let (ours, theirs) = (model::apply(&vfs, &caller, op), kernel.apply(op));
                        if ours != theirs {
                            return Err(format!(
                                "operation {index}, {op:?}: ours {ours:?}, the kernel's {theirs:?}"
                            ));
                        }
                    }
                    Ok(())
                });
                run.join().unwrap()
            });
            let _: () = outcome.map_err(proptest::test_runner::TestCaseError::fail)?;
            proptest::prop_assert_eq!(tree::of_vfs(&vfs), tree::of_kernel(&kernel), "after {:?}", ops);
            Ok(())
        })
        .unwrap();
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root, to make files of several owners");
    }
    root
}

#[test]
fn operations_of_root_end_as_in_the_kernel() {
    if is_root() {
        compare(&Identity::Superuser, 300);
    }
}

#[test]
fn operations_of_a_user_end_as_in_the_kernel() {
    if is_root() {
        compare(&Identity::User { uid: NOBODY, gid: NOBODY, groups: vec![7] }, 1000);
    }
}

#[test]
fn rare_cases_end_as_in_the_kernel() {
    if !is_root() {
        return;
    }
    for caller in [Identity::Superuser, Identity::User { uid: NOBODY, gid: NOBODY, groups: vec![7] }] {
        let kernel = Kernel::new();
        let vfs = Vfs::new(MemoryFs::default()).unwrap();
        common::ops::prepare(&kernel, &vfs);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                become_user(&caller);
                for op in Op::special().into_iter().filter(|op| op.is_comparable(&vfs, &caller)) {
                    assert_eq!(model::apply(&vfs, &caller, &op), kernel.apply(&op), "{caller:?}: {op:?}");
                }
            });
            run.join().unwrap();
        });
        assert_eq!(tree::of_vfs(&vfs), tree::of_kernel(&kernel), "{caller:?}");
    }
}
