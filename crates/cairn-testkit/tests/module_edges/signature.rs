//! What a program sees of a public thing, in one line for each part: signatures without the names
//! of arguments, fields, variants, derived traits.

use quote::ToTokens;
use syn::{
    Attribute, Fields, FnArg, Generics, Item, ItemImpl, ReturnType, Signature, TraitItem, Type,
    Visibility,
};

pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub fn is_offered(item: &Item) -> bool {
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

/// Tokens as they are written.
fn written(tokens: &impl ToTokens) -> String {
    const SPACES: [(&str, &str); 17] = [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        ("[ ", "["),
        (" ]", "]"),
        (" ,", ","),
        (" :", ":"),
        (" ;", ";"),
        ("& ", "&"),
        (",>", ">"),
        (",)", ")"),
    ];
    let text = tokens.to_token_stream().to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    SPACES.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

pub fn shown_type(of: &Type) -> String {
    written(of)
}

fn condition(generics: &Generics) -> String {
    generics.where_clause.as_ref().map_or(String::new(), |clause| format!(" {}", written(clause)))
}

/// `self` whether the function changes its own copy or not.
fn own(receiver: &str) -> String {
    receiver.strip_prefix("mut ").unwrap_or(receiver).to_owned()
}

/// A function without its name and those of its arguments.
pub fn of(signature: &Signature) -> String {
    let arguments: Vec<String> = signature
        .inputs
        .iter()
        .map(|argument| match argument {
            FnArg::Receiver(receiver) => own(&written(receiver)),
            FnArg::Typed(argument) => written(&argument.ty),
        })
        .collect();
    let constant = if signature.constness.is_some() { "const " } else { "" };
    let output = match &signature.output {
        ReturnType::Default => String::new(),
        ReturnType::Type(_, output) => format!(" -> {}", written(output)),
    };
    format!(
        "{constant}fn{}({}){output}{}",
        written(&signature.generics),
        arguments.join(", "),
        condition(&signature.generics)
    )
}

/// The trait of a block, if it is one of a trait.
pub fn implemented(block: &ItemImpl) -> Option<String> {
    let (path, _) = block.trait_.as_ref()?;
    Some(written(path))
}

/// The traits that an item derives, and whether it may grow.
fn attributes(attributes: &[Attribute]) -> Vec<String> {
    let mut lines = Vec::new();
    for attribute in attributes {
        if attribute.path().is_ident("non_exhaustive") {
            lines.push(": non_exhaustive".to_owned());
        }
        if attribute.path().is_ident("derive")
            && let Ok(list) = attribute.meta.require_list()
        {
            let names = list.tokens.to_string();
            let last = |name: &str| name.rsplit("::").next().unwrap_or_default().trim().to_owned();
            lines.extend(
                names
                    .split(',')
                    .map(last)
                    .filter(|name| !name.is_empty())
                    .map(|name| format!(": impl {name}")),
            );
        }
    }
    lines
}

/// Fields of a variant.
fn whole(fields: &Fields) -> String {
    let types = fields.iter().map(|field| match &field.ident {
        Some(name) => format!("{name}: {}", written(&field.ty)),
        None => written(&field.ty),
    });
    let types = types.collect::<Vec<_>>().join(", ");
    match fields {
        Fields::Named(_) => format!(" {{ {types} }}"),
        Fields::Unnamed(_) => format!("({types})"),
        Fields::Unit => String::new(),
    }
}

fn trait_item(item: &TraitItem) -> Option<String> {
    let (name, is, provided) = match item {
        TraitItem::Fn(item) => (&item.sig.ident, of(&item.sig), item.default.is_some()),
        TraitItem::Const(item) => {
            (&item.ident, format!("const {}", written(&item.ty)), item.default.is_some())
        }
        TraitItem::Type(item) => (&item.ident, "type".to_owned(), item.default.is_some()),
        _ => return None,
    };
    let provided = if provided { " (provided)" } else { "" };
    Some(format!("::{name}: {is}{provided}"))
}

/// The ends of the lines of an item.
pub fn lines(item: &Item) -> Vec<String> {
    let (mut lines, attrs) = match item {
        Item::Const(item) => (vec![format!(": const {}", written(&item.ty))], &item.attrs),
        Item::Static(item) => (vec![format!(": static {}", written(&item.ty))], &item.attrs),
        Item::Fn(item) => (vec![format!(": {}", of(&item.sig))], &item.attrs),
        Item::Type(item) => {
            let generics = written(&item.generics);
            (vec![format!(": type{generics} = {}", written(&item.ty))], &item.attrs)
        }
        Item::Struct(item) => {
            let head = format!(": struct{}", written(&item.generics));
            let public = item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis));
            let fields = public.map(|(number, field)| {
                let name = field.ident.as_ref().map_or(number.to_string(), ToString::to_string);
                format!("::{name}: {}", written(&field.ty))
            });
            (std::iter::once(head).chain(fields).collect(), &item.attrs)
        }
        Item::Enum(item) => {
            let head = format!(": enum{}", written(&item.generics));
            let variants = item
                .variants
                .iter()
                .map(|variant| format!("::{}{}", variant.ident, whole(&variant.fields)));
            (std::iter::once(head).chain(variants).collect(), &item.attrs)
        }
        Item::Trait(item) => {
            let bounds: Vec<String> = item.supertraits.iter().map(written).collect();
            let bounds = bounds.join(" + ");
            let colon = if bounds.is_empty() { "" } else { ": " };
            let head = format!(": trait{}{colon}{bounds}", written(&item.generics));
            let items = item.items.iter().filter_map(trait_item);
            (std::iter::once(head).chain(items).collect(), &item.attrs)
        }
        _ => return Vec::new(),
    };
    lines.extend(attributes(attrs));
    lines
}
