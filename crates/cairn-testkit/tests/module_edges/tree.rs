//! The modules of a crate as its sources have them: the file of each, what it defines, what it
//! imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree, Visibility};

/// The path of a module from the root of its crate, which is empty.
pub type ModulePath = Vec<String>;

pub struct Module {
    pub file: PathBuf,
    pub items: Vec<Item>,
    /// The names that the module defines itself.
    pub defined: Vec<String>,
    pub imports: Imports,
}

#[derive(Default)]
pub struct Imports {
    /// The names, and the paths that they stand for.
    pub names: BTreeMap<String, Vec<String>>,
    /// What is imported whole (`use path::*`).
    pub globs: Vec<Vec<String>>,
}

pub struct Crate {
    pub modules: BTreeMap<ModulePath, Module>,
    /// Those that are `pub`.
    pub public: BTreeSet<ModulePath>,
}

impl Crate {
    pub fn read(sources: &Path) -> Self {
        let mut found = Self { modules: BTreeMap::new(), public: BTreeSet::new() };
        for root in ["lib.rs", "main.rs"] {
            let file = sources.join(root);
            if file.exists() {
                found.read_file(Vec::new(), file, sources.to_owned());
            }
        }
        found
    }

    fn read_file(&mut self, path: ModulePath, file: PathBuf, folder: PathBuf) {
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(path, file, folder, parsed.items);
    }

    /// `folder` is where the files of the module's own modules are.
    fn add(&mut self, path: ModulePath, file: PathBuf, folder: PathBuf, items: Vec<Item>) {
        let (mut defined, mut found) = (Vec::new(), Imports::default());
        let mut kept = Vec::new();
        for item in items.into_iter().filter(|item| !for_tests(attributes(item))) {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let inside = [path.clone(), vec![name.clone()]].concat();
                    if matches!(module.vis, Visibility::Public(_)) {
                        self.public.insert(inside.clone());
                    }
                    match module.content {
                        Some((_, items)) => {
                            self.add(inside, file.clone(), folder.join(&name), items)
                        }
                        None => {
                            let beside = folder.join(format!("{name}.rs"));
                            let below = folder.join(&name).join("mod.rs");
                            let file = if beside.exists() { beside } else { below };
                            self.read_file(inside, file, folder.join(&name));
                        }
                    }
                    continue;
                }
                Item::Use(ref import) => flatten(&import.tree, Vec::new(), &mut found),
                ref other => defined.extend(name_of(other)),
            }
            kept.push(item);
        }
        self.modules.insert(path, Module { file, items: kept, defined, imports: found });
    }
}

/// Whether an import only passes names on.
pub fn is_re_export(import: &syn::ItemUse) -> bool {
    !matches!(import.vis, Visibility::Inherited)
}

pub fn imports(tree: &UseTree) -> Imports {
    let mut found = Imports::default();
    flatten(tree, Vec::new(), &mut found);
    found
}

fn flatten(tree: &UseTree, mut path: Vec<String>, found: &mut Imports) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            flatten(&step.tree, path, found);
        }
        UseTree::Name(name) if name.ident == "self" => {
            found.names.insert(path.last().unwrap().clone(), path);
        }
        UseTree::Name(name) => {
            path.push(name.ident.to_string());
            found.names.insert(name.ident.to_string(), path);
        }
        UseTree::Rename(name) => {
            if name.ident != "self" {
                path.push(name.ident.to_string());
            }
            // `as _` names nothing; two of them are two imports all the same.
            let known_as =
                if name.rename == "_" { path.join("::") } else { name.rename.to_string() };
            found.names.insert(known_as, path);
        }
        UseTree::Glob(_) => found.globs.push(path),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, path.clone(), found);
            }
        }
    }
}

/// `#[cfg(test)]`, also within `all`, and `#[test]`.
pub fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let condition = list.tokens.to_string();
                    condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
                        && !condition.contains("not")
                })
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

pub fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
