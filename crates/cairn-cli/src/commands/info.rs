//! `cairn info`.

use serde_json::Value;

use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::session::ImageArg;

/// Arguments of `info`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn info disk.img#2

The JSON form is one object: \"image\", \"type\", and the format's own fields, whose names do not change.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: ImageArg,
}

/// Prints what the image holds: reads the superblock alone, so it works on whatever is behind it.
///
/// # Errors
/// The image cannot be opened.
pub fn run(args: &Args) -> Outcome {
    let image = args.image.spec()?;
    let info = cairn::inspect(&image, &args.image.devices)?;
    let details = serde_json::to_value(&info);
    let details = details.map_err(|error| Failure::new(Status::Failed, format!("{image}: {error}")))?;
    let mut object = serde_json::Map::new();
    object.insert("image".into(), image.to_string().into());
    object.insert("type".into(), info.format().name().into());
    if let Value::Object(fields) = details {
        object.extend(fields);
    }
    with_stdout(|output| {
        if args.json {
            writeln!(output, "{:#}", Value::Object(object))
        } else {
            output.bytes(as_text(&object).as_bytes())
        }
    })
}

/// `key: value` lines; nested objects are indented.
fn as_text(object: &serde_json::Map<String, Value>) -> String {
    let mut text = String::new();
    append(&mut text, object, 0);
    text
}

fn append(text: &mut String, object: &serde_json::Map<String, Value>, indent: usize) {
    for (key, value) in object {
        let key = format!("{:indent$}{}:", "", key.replace('_', " "));
        match value {
            Value::Object(inner) => {
                text.push_str(&format!("{key}\n"));
                append(text, inner, indent + 2);
            }
            value => text.push_str(&format!("{key:<26} {}\n", scalar(value))),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_lists_every_field() {
        let Value::Object(object) = serde_json::json!({
            "image": "disk.img", "clean": true, "features": ["extent", "64bit"], "label": "",
            "journal": {"blocks": 1024},
        }) else {
            unreachable!("an object literal")
        };
        let text = as_text(&object);
        for line in ["image:                     disk.img", "features:                  extent 64bit", "  blocks:"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("clean:                     yes"), "{text}");
    }
}
