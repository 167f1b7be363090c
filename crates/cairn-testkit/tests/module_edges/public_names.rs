//! The names that the facade offers, compared with the list in `crates/cairn/public-names.txt`: a
//! line that goes is a change that breaks programs, and is not made by mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{ImplItem, Item, TraitItem, Type, Visibility};

use crate::tree::{Crate, ModulePath, imports};

/// A module of the crate, and the name of something in it.
type Place = (ModulePath, String);

struct Names<'a> {
    parsed: &'a Crate,
    /// Public methods and constants of each type.
    methods: BTreeMap<Place, BTreeSet<String>>,
    found: BTreeSet<String>,
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

impl Names<'_> {
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
        let here = self.parsed.modules.get(module)?;
        match (self.parsed.modules.contains_key(&inside), rest) {
            (true, []) => Some((module.to_vec(), first.clone())),
            (true, rest) => self.below(&inside, rest),
            (false, _) if here.defined.contains(first) => Some((module.to_vec(), first.clone())),
            (false, _) => {
                let import = here.imports.names.get(first).filter(|import| *import != path)?;
                self.resolve(module, import)
            }
        }
    }

    fn methods(&mut self) {
        for (path, module) in &self.parsed.modules {
            for item in &module.items {
                let Item::Impl(block) = item else { continue };
                let Type::Path(of) = &*block.self_ty else { continue };
                let Some(name) = of.path.segments.last().filter(|_| block.trait_.is_none()) else {
                    continue;
                };
                let Some(place) = self.resolve(path, &[name.ident.to_string()]) else { continue };
                let names = block.items.iter().filter_map(|item| match item {
                    ImplItem::Fn(item) if is_public(&item.vis) => Some(item.sig.ident.to_string()),
                    ImplItem::Const(item) if is_public(&item.vis) => Some(item.ident.to_string()),
                    _ => None,
                });
                self.methods.entry(place).or_default().extend(names);
            }
        }
    }

    fn module(&mut self, path: &[String], shown: &str) {
        let parsed = self.parsed;
        for (inside, _) in parsed.modules.iter().filter(|(inside, _)| {
            inside.len() == path.len() + 1
                && inside.starts_with(path)
                && parsed.public.contains(*inside)
        }) {
            self.module(inside, &format!("{shown}::{}", inside[inside.len() - 1]));
        }
        for item in &parsed.modules[path].items {
            match item {
                Item::Use(import) if is_public(&import.vis) => {
                    for (name, target) in imports(&import.tree).names {
                        let shown = format!("{shown}::{name}");
                        match self.resolve(path, &target) {
                            Some(place) => self.thing(&place, &shown),
                            None => {
                                self.found.insert(format!("{shown} = {}", target.join("::")));
                            }
                        }
                    }
                }
                other => {
                    let name = crate::tree::name_of(other);
                    if let Some(name) = name.filter(|_| is_offered(other)) {
                        self.thing(&(path.to_vec(), name.clone()), &format!("{shown}::{name}"));
                    }
                }
            }
        }
    }

    fn thing(&mut self, place: &Place, shown: &str) {
        let (module, name) = place;
        let inside = [&module[..], std::slice::from_ref(name)].concat();
        if self.parsed.modules.contains_key(&inside) {
            return self.module(&inside, shown);
        }
        self.found.insert(shown.to_owned());
        let named = |item: &&Item| crate::tree::name_of(item).as_ref() == Some(name);
        let mut parts: BTreeSet<String> = self.methods.get(place).cloned().unwrap_or_default();
        for item in self.parsed.modules[module].items.iter().filter(named) {
            match item {
                Item::Struct(item) => {
                    let fields = item.fields.iter().filter(|field| is_public(&field.vis));
                    parts
                        .extend(fields.filter_map(|field| Some(field.ident.as_ref()?.to_string())));
                }
                Item::Enum(item) => {
                    parts.extend(item.variants.iter().map(|variant| variant.ident.to_string()));
                }
                Item::Trait(item) => {
                    parts.extend(item.items.iter().filter_map(|item| match item {
                        TraitItem::Fn(item) => Some(item.sig.ident.to_string()),
                        TraitItem::Const(item) => Some(item.ident.to_string()),
                        TraitItem::Type(item) => Some(item.ident.to_string()),
                        _ => None,
                    }))
                }
                _ => {}
            }
        }
        self.found.extend(parts.into_iter().map(|part| format!("{shown}::{part}")));
    }
}

fn is_offered(item: &Item) -> bool {
    match item {
        Item::Const(item) => is_public(&item.vis),
        Item::Enum(item) => is_public(&item.vis),
        Item::Fn(item) => is_public(&item.vis),
        Item::Static(item) => is_public(&item.vis),
        Item::Struct(item) => is_public(&item.vis),
        Item::Trait(item) => is_public(&item.vis),
        Item::Type(item) => is_public(&item.vis),
        _ => false,
    }
}

fn names(sources: &Path, shown: &str) -> BTreeSet<String> {
    let parsed = Crate::read(sources);
    let mut names = Names { parsed: &parsed, methods: BTreeMap::new(), found: BTreeSet::new() };
    names.methods();
    names.module(&[], shown);
    names.found
}

/// `CAIRN_NAMES=write` writes the list.
#[test]
fn the_public_names_of_the_facade_are_those_of_the_list() {
    let facade = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cairn");
    let list = facade.join("public-names.txt");
    let text: String =
        names(&facade.join("src"), "cairn").iter().map(|name| format!("{name}\n")).collect();
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
        "gone (programs break: give the next version a new number): {gone:?}\nnew: {new:?}\nIf \
         this is meant, run `make names`."
    );
    assert!(now.contains("cairn::Volume::close") && now.contains("cairn::fs::File::read_at"));
    assert!(now.contains("cairn::Format::Ext4") && now.contains("cairn::fs::OpenOptions::mode"));
    assert!(now.contains("cairn::FileSystem = cairn_vfs::FileSystem") && now.len() > 200);
}
