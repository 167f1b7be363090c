//! What the facade offers, compared with the list in `crates/cairn/public-names.txt`: names with
//! their signatures, fields, variants and traits, also of what it passes on from the crates below.
//! A line that goes is a change that breaks programs, and is not made by mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use syn::{ImplItem, Item, Type};

use crate::signature::{self, is_public, shown_type};
use crate::tree::{Crate, ModulePath, imports};

/// A module of the crate, and the name of something in it.
type Place = (ModulePath, String);

/// A crate whose things are offered.
struct Parsed {
    tree: Crate,
    /// Public methods, constants and traits of each type, as the end of a line.
    parts: BTreeMap<Place, BTreeSet<String>>,
}

impl Parsed {
    fn read(sources: &Path) -> Self {
        let mut parsed = Self { tree: Crate::read(sources), parts: BTreeMap::new() };
        parsed.parts = parsed.all_parts();
        parsed
    }

    /// What a path in a module leads to: a module or a thing of the crate. `None` for what belongs
    /// to another crate.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len() - 1].to_vec(),
            _ => return self.below(module, path),
        };
        match rest {
            [] => at.pop().map(|name| (at, name)),
            _ => self.below(&at, rest),
        }
    }

    fn below(&self, module: &[String], path: &[String]) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        let inside = [module, std::slice::from_ref(first)].concat();
        let here = self.tree.modules.get(module)?;
        match (self.tree.modules.contains_key(&inside), rest) {
            (true, []) => Some((module.to_vec(), first.clone())),
            (true, rest) => self.below(&inside, rest),
            (false, _) if here.defined.contains(first) => Some((module.to_vec(), first.clone())),
            (false, _) => match here.imports.names.get(first).filter(|import| *import != path) {
                Some(import) => self.resolve(module, import),
                None => here.imports.globs.iter().find_map(|glob| {
                    let (above, name) = self.resolve(module, glob)?;
                    self.below(&[above, vec![name]].concat(), path)
                }),
            },
        }
    }

    fn all_parts(&self) -> BTreeMap<Place, BTreeSet<String>> {
        let mut parts: BTreeMap<Place, BTreeSet<String>> = BTreeMap::new();
        for (path, module) in &self.tree.modules {
            for item in &module.items {
                let Item::Impl(block) = item else { continue };
                let Type::Path(of) = &*block.self_ty else { continue };
                let Some(name) = of.path.segments.last() else { continue };
                let Some(place) = self.resolve(path, &[name.ident.to_string()]) else { continue };
                let of = parts.entry(place).or_default();
                if let Some(name) = signature::implemented(block) {
                    of.insert(format!(": impl {name}"));
                    continue;
                }
                of.extend(block.items.iter().filter_map(|item| match item {
                    ImplItem::Fn(item) if is_public(&item.vis) => {
                        Some(format!("::{}: {}", item.sig.ident, signature::of(&item.sig)))
                    }
                    ImplItem::Const(item) if is_public(&item.vis) => {
                        Some(format!("::{}: const {}", item.ident, shown_type(&item.ty)))
                    }
                    _ => None,
                }));
            }
        }
        parts
    }
}

/// The list that is made.
struct Names {
    crates: PathBuf,
    parsed: BTreeMap<String, Rc<Parsed>>,
    found: BTreeSet<String>,
}

impl Names {
    /// A crate of the workspace, by its name in paths.
    fn crate_named(&mut self, name: &str) -> Option<Rc<Parsed>> {
        if !name.starts_with("cairn_") {
            return None;
        }
        if !self.parsed.contains_key(name) {
            let sources = self.crates.join(name.replace('_', "-")).join("src");
            self.parsed.insert(name.to_owned(), Rc::new(Parsed::read(&sources)));
        }
        self.parsed.get(name).cloned()
    }

    fn module(&mut self, of: &Rc<Parsed>, path: &[String], shown: &str) {
        let tree = &of.tree;
        for inside in tree.modules.keys().filter(|inside| {
            inside.len() == path.len() + 1
                && inside.starts_with(path)
                && tree.public.contains(*inside)
        }) {
            self.module(of, inside, &format!("{shown}::{}", inside[inside.len() - 1]));
        }
        for item in &tree.modules[path].items {
            match item {
                Item::Use(import) if is_public(&import.vis) => {
                    for (name, target) in imports(&import.tree).names {
                        self.passed_on(of, path, &target, &format!("{shown}::{name}"));
                    }
                }
                other => {
                    let name = crate::tree::name_of(other);
                    if let Some(name) = name.filter(|_| signature::is_offered(other)) {
                        self.thing(of, &(path.to_vec(), name.clone()), &format!("{shown}::{name}"));
                    }
                }
            }
        }
    }

    /// What an import of a module offers under another name.
    fn passed_on(&mut self, of: &Rc<Parsed>, path: &[String], target: &[String], shown: &str) {
        if let Some(place) = of.resolve(path, target) {
            return self.thing(of, &place, shown);
        }
        let known = &of.tree.modules[path].imports.names;
        let (first, rest) = target.split_first().expect("a path names something");
        if let Some(import) = known.get(first).filter(|import| import.first() != Some(first)) {
            let target = [&import[..], rest].concat();
            return self.passed_on(of, path, &target, shown);
        }
        let other = target.split_first().and_then(|(first, rest)| {
            let other = self.crate_named(first)?;
            let place = other.resolve(&[], rest)?;
            Some((other, place))
        });
        match other {
            Some((other, place)) => self.thing(&other, &place, shown),
            None => {
                self.found.insert(format!("{shown} = {}", target.join("::")));
            }
        }
    }

    fn thing(&mut self, of: &Rc<Parsed>, place: &Place, shown: &str) {
        let (module, name) = place;
        let inside = [&module[..], std::slice::from_ref(name)].concat();
        if of.tree.modules.contains_key(&inside) {
            return self.module(of, &inside, shown);
        }
        let here = &of.tree.modules[module].items;
        let named = |item: &&Item| crate::tree::name_of(item).as_ref() == Some(name);
        let mut lines: BTreeSet<String> =
            here.iter().filter(named).flat_map(signature::lines).collect();
        if lines.is_empty() {
            // It is passed on once more.
            let imported = of.tree.modules[module].imports.names.get(name).cloned();
            return match imported {
                Some(target) => self.passed_on(of, module, &target, shown),
                None => {
                    self.found.insert(shown.to_owned());
                }
            };
        }
        lines.extend(of.parts.get(place).into_iter().flatten().cloned());
        self.found.extend(lines.into_iter().map(|line| format!("{shown}{line}")));
    }
}

fn names() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let facade = Rc::new(Parsed::read(&crates.join("cairn/src")));
    let mut names = Names { crates, parsed: BTreeMap::new(), found: BTreeSet::new() };
    names.module(&facade, &[], "cairn");
    names.found
}

/// `CAIRN_NAMES=write` writes the list.
#[test]
fn the_public_names_of_the_facade_are_those_of_the_list() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cairn/public-names.txt");
    let text: String = names().iter().map(|name| format!("{name}\n")).collect();
    if std::env::var_os("CAIRN_NAMES").is_some_and(|what| what == "write") {
        std::fs::write(&list, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&list).unwrap();
    let (now, before): (BTreeSet<&str>, BTreeSet<&str>) =
        (text.lines().collect(), kept.lines().collect());
    let gone: Vec<_> = before.difference(&now).collect();
    let new: Vec<_> = now.difference(&before).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "gone (programs break: give the next version a new number): {gone:#?}\nnew: {new:#?}\nIf \
         this is meant, run `make names`."
    );
    for line in [
        "cairn::Volume::close: fn(self) -> cairn_vfs::Result<()>",
        "cairn::fs::File: impl Read",
        "cairn::fs::OpenOptions::mode: fn(&mut self, u32) -> &mut Self",
        "cairn::Format: impl Copy",
        "cairn::Format::Ext4",
        "cairn::FileSystem::forget: fn(&self, Ino, u64)",
        "cairn::vfs::FileKind::Directory",
        "cairn::OpenOptions::devices: Vec<PathBuf>",
    ] {
        assert!(now.contains(line), "{line}");
    }
    assert!(now.len() > 1000, "{}", now.len());
}
