//! Which file defines what a path in the code names.

use std::path::PathBuf;

use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item};

use crate::tree::{Crate, ModulePath, for_tests, imports, is_re_export};

/// Every use of an item in the crate: the file that uses it, the file that defines it, the item.
pub fn uses(parsed: &Crate) -> Vec<(PathBuf, PathBuf, String)> {
    let mut found = Vec::new();
    for (path, module) in &parsed.modules {
        let mut seen = Paths::default();
        for item in &module.items {
            if !matches!(item, Item::Use(import) if is_re_export(import)) {
                seen.visit_item(item);
            }
        }
        for used in &seen.paths {
            if let Some((file, name)) = parsed.definition(path, used, 0) {
                found.push((module.file.clone(), file, name));
            }
        }
    }
    found
}

impl Crate {
    /// Where the item that `path` names within `module` is defined, and its name. None for what is
    /// no item of this crate.
    fn definition(
        &self,
        module: &ModulePath,
        path: &[String],
        depth: usize,
    ) -> Option<(PathBuf, String)> {
        let (first, rest) = path.split_first()?;
        // Imports may name each other in a circle only in sources that do not compile.
        if depth > 32 {
            return None;
        }
        match first.as_str() {
            "crate" => self.below(&Vec::new(), rest, depth + 1),
            "self" => self.below(module, rest, depth + 1),
            "super" => {
                self.below(&module[..module.len().checked_sub(1)?].to_vec(), rest, depth + 1)
            }
            _ => self.below(module, path, depth + 1),
        }
    }

    fn below(
        &self,
        module: &ModulePath,
        path: &[String],
        depth: usize,
    ) -> Option<(PathBuf, String)> {
        let (first, rest) = path.split_first()?;
        if first == "super" || first == "self" {
            return self.definition(module, path, depth);
        }
        let here = self.modules.get(module)?;
        let child = [module.clone(), vec![first.clone()]].concat();
        let is_module = self.modules.contains_key(&child);
        // A module may have the name of a function; only the module has something inside.
        if here.defined.contains(first) && (rest.is_empty() || !is_module) {
            return Some((here.file.clone(), first.clone()));
        }
        if is_module {
            return self.below(&child, rest, depth);
        }
        if let Some(stands_for) = here.imports.names.get(first) {
            // `use name;` of another crate stands for itself.
            if stands_for.first() == Some(first) {
                return None;
            }
            return self.definition(module, &[stands_for, rest].concat(), depth);
        }
        here.imports
            .globs
            .iter()
            .filter(|whole| whole.first() != Some(first))
            .find_map(|whole| self.definition(module, &[whole, path].concat(), depth))
    }
}

/// All paths of a piece of code, also in the arguments of macros.
#[derive(Default)]
struct Paths {
    paths: Vec<Vec<String>>,
}

impl Paths {
    /// The arguments of a macro need not be Rust: paths are found as names with `::` between them.
    fn tokens(&mut self, mut at: Cursor<'_>) {
        let (mut path, mut joined) = (Vec::new(), false);
        loop {
            let name = at.ident();
            if !joined || name.is_none() {
                self.paths.extend(Some(std::mem::take(&mut path)).filter(|path| !path.is_empty()));
            }
            joined = false;
            at = if let Some((name, rest)) = name {
                path.push(name.to_string());
                let behind = colon(rest).and_then(colon);
                joined = behind.is_some();
                behind.unwrap_or(rest)
            } else if let Some((inside, _, _, rest)) = at.any_group() {
                self.tokens(inside);
                rest
            } else if let Some((text, rest)) = at.literal() {
                self.placeholders(&text.to_string());
                rest
            } else if let Some((_, rest)) = at.token_tree() {
                rest
            } else {
                return;
            };
        }
    }

    /// Of a text only `{NAME}` is code; a comment on what a macro defines is a text, too.
    fn placeholders(&mut self, text: &str) {
        let names = text
            .split('{')
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next());
        self.paths.extend(names.filter(|name| !name.is_empty()).map(|name| vec![name.to_owned()]));
    }
}

fn colon(at: Cursor<'_>) -> Option<Cursor<'_>> {
    at.punct().filter(|(sign, _)| sign.as_char() == ':').map(|(_, rest)| rest)
}

impl<'a> Visit<'a> for Paths {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.tokens(TokenBuffer::new2(call.tokens.clone()).begin());
        visit::visit_macro(self, call);
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let tests = matches!(item, ImplItem::Fn(function) if for_tests(&function.attrs));
        if !tests {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'a syn::ItemUse) {
        self.paths.extend(imports(&import.tree).names.into_values());
    }
}
