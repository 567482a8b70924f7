//! Circles between the files of a crate: files that use each other, if only through more files.
//!
//! A file uses another one if a path in it leads to an item there. Re-exports are followed to the
//! item, and are no use themselves. A module may use the modules that it consists of, and they may
//! use it. Tests do not count, nor do paths in the arguments of macros.

use crate::Findings;
use crate::sources::read;
use cargo_metadata::Metadata;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemMod, ItemUse, Meta, UseTree, Visibility};

/// A module's path from the root of the crate, or that of an item.
type Names = Vec<String>;

/// What one file says.
#[derive(Default)]
struct Source {
    file: PathBuf,
    /// Names that stand for a path, and whether other files see them.
    imports: Vec<(String, Names, bool)>,
    /// Paths as written.
    paths: Vec<Names>,
    /// Modules in files of their own.
    children: Names,
}

/// The files of a target by module.
type Modules = BTreeMap<Names, Source>;

/// What files use of others that use them in turn, if only through more files.
pub(crate) fn check(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    for package in metadata.workspace_packages() {
        let shipped = package.targets.iter().filter(|target| {
            !(target.is_test() || target.is_bench() || target.is_example() || target.is_custom_build())
        });
        findings.extend(shipped.flat_map(|target| {
            let mut modules = Modules::new();
            collect(target.src_path.as_std_path(), Names::new(), &mut modules);
            circles(&uses(&modules))
        }));
    }
    findings
}

/// Reads a file and those of its modules.
fn collect(file: &Path, module: Names, modules: &mut Modules) {
    let source = parse(file, &read(file));
    let holds_children =
        ["lib", "main", "mod"].iter().any(|name| file.file_stem().unwrap_or_default() == *name);
    let folder = if holds_children { file.with_file_name("") } else { file.with_extension("") };
    for child in &source.children {
        let flat = folder.join(child).with_extension("rs");
        let file = if flat.exists() { flat } else { folder.join(child).join("mod.rs") };
        collect(&file, [&module[..], std::slice::from_ref(child)].concat(), modules);
    }
    modules.insert(module, source);
}

/// The paths in a file. A file that does not parse says nothing: the compiler tells of it.
fn parse(file: &Path, text: &str) -> Source {
    let mut source = Source { file: file.to_owned(), ..Source::default() };
    if let Ok(syntax) = syn::parse_file(text) {
        source.visit_file(&syntax);
    }
    source
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, method: &'ast ImplItemFn) {
        if !is_test(&method.attrs) {
            visit::visit_impl_item_fn(self, method);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_none() {
            self.children.push(module.ident.to_string());
        }
        visit::visit_item_mod(self, module);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_seen = !matches!(item.vis, Visibility::Inherited);
        self.import(Names::new(), &item.tree, is_seen);
    }

    /// `pub(crate)` and `pub(super)` name a module without using it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

impl Source {
    fn import(&mut self, mut path: Names, tree: &UseTree, is_seen: bool) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(path, &tree.tree, is_seen);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(path.clone(), tree, is_seen));
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.imports.push((path.last().cloned().unwrap_or_default(), path, is_seen));
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.imports.push((name.ident.to_string(), path, is_seen));
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.imports.push((name.rename.to_string(), path, is_seen));
            }
            UseTree::Glob(_) => self.imports.push(("*".to_owned(), path, is_seen)),
        }
    }
}

/// Whether what stands under these attributes is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "test")
        }
        _ => false,
    })
}

/// What each file uses of each other one.
type Uses<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<String>>>;

fn uses(modules: &Modules) -> Uses<'_> {
    let mut uses = Uses::new();
    for (module, source) in modules {
        let imported = source.imports.iter().filter(|(_, _, is_seen)| !is_seen).map(|(_, path, _)| path);
        for path in imported.chain(&source.paths) {
            let Some((target, item)) = resolve(modules, module, path, 0) else { continue };
            let file = &modules[&target].file;
            if !module.starts_with(&target) {
                uses.entry(&source.file).or_default().entry(file).or_default().insert(item);
            }
        }
    }
    uses
}

/// The module of the item that a path in a module leads to, and the item's name.
fn resolve(modules: &Modules, module: &[String], path: &[String], depth: usize) -> Option<(Names, String)> {
    let mut at = module.to_vec();
    let mut rest = path.iter().peekable();
    match rest.peek()?.as_str() {
        "crate" => at.clear(),
        "super" | "self" => {}
        // Anything else is of another crate, or of this file.
        first => {
            let source = modules.get(&at)?;
            let is_known = source.children.iter().any(|child| child == first)
                || source.imports.iter().any(|(name, _, _)| name == first);
            if !is_known {
                return None;
            }
        }
    }
    while let Some(name) = rest.next() {
        match name.as_str() {
            "crate" | "self" => continue,
            "super" => {
                at.pop()?;
                continue;
            }
            _ => {}
        }
        at.push(name.clone());
        if modules.contains_key(&at) {
            continue;
        }
        at.pop();
        let source = modules.get(&at)?;
        let alias = source.imports.iter().find(|(known, _, _)| known == name);
        return match alias {
            Some((_, target, _)) if depth < 8 => {
                let target: Names = target.iter().chain(rest).cloned().collect();
                resolve(modules, &at, &target, depth + 1)
            }
            _ => Some((at, name.clone())),
        };
    }
    let item = at.last().cloned().unwrap_or_default();
    Some((at, item))
}

fn circles(uses: &Uses<'_>) -> Findings {
    let mut findings = Findings::new();
    for (file, targets) in uses {
        for (target, items) in targets {
            if reachable(uses, target).contains(file) {
                let items: Vec<_> = items.iter().map(String::as_str).collect();
                let (file, items, target) = (file.display(), items.join(", "), target.display());
                findings.push(format!("{file} uses {items} of {target}, which uses it in turn"));
            }
        }
    }
    findings
}

/// The files that a file uses, and those that these use, and so on.
fn reachable<'a>(uses: &Uses<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let (mut reached, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(file) = waiting.pop() {
        let next = uses.get(file).into_iter().flat_map(BTreeMap::keys).copied();
        waiting.extend(next.filter(|file| reached.insert(*file)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles among the root of a crate, its modules `a` and `b`, and `c` in `b`.
    fn found(lib: &str, a: &str, b: &str, c: &str) -> Findings {
        let files = [("", lib), ("a", a), ("b", b), ("b/c", c)];
        let mut modules = Modules::new();
        for (path, text) in files {
            let module: Names = path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            let name = if path.is_empty() { "lib" } else { path };
            modules.insert(module, parse(&Path::new(name).with_extension("rs"), text));
        }
        circles(&uses(&modules))
    }

    #[test]
    fn files_that_use_each_other_are_found_also_through_a_re_export() {
        let text = "a.rs uses B of b.rs, which uses it in turn";
        let other = "b.rs uses f of a.rs, which uses it in turn";
        let b = "pub struct B; fn g() { crate::a::f() }";
        assert_eq!(found("mod a; mod b;", "use crate::b::B; pub fn f() {}", b, ""), [text, other]);
        let lib = "mod a; mod b; pub use b::B;";
        assert_eq!(found(lib, "use crate::B; pub fn f() {}", b, ""), [text, other]);
    }

    #[test]
    fn a_circle_through_a_module_of_a_module_is_found() {
        let c = "fn g() { crate::a::f() }";
        let circle = found("mod a; mod b;", "use crate::b::h; pub fn f() {}", "mod c; fn h() { c::g() }", c);
        assert_eq!(circle.len(), 3, "{circle:?}");
    }

    #[test]
    fn a_module_and_its_parts_may_use_each_other() {
        let b = "mod c; pub struct B; fn g() { c::f() }";
        assert!(
            found("mod a; mod b;", "use crate::b::B;", b, "use super::B; pub(crate) fn f() {}").is_empty()
        );
    }

    #[test]
    fn what_only_tests_use_makes_no_circle() {
        let a = "pub fn f() {} #[cfg(test)] mod tests { use crate::b::B; }";
        assert!(found("mod a; mod b;", a, "use crate::a::f; pub struct B;", "").is_empty());
    }
}
