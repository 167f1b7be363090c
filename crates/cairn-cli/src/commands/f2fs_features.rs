//! Features of F2FS that mkfs.f2fs has options of their own for.

use cairn::Format;

use crate::failure::{Failure, Outcome};

/// What mkfs.f2fs makes of `-g android`.
const ANDROID: [&str; 5] = ["encrypt", "verity", "quota", "extra_attr", "project_quota"];

/// Features beside those of `-O`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct F2fsFeatures {
    /// f2fs: features that belong together. android is -O
    /// encrypt,verity,quota,extra_attr,project_quota.
    #[arg(short = 'g', long, value_name = "NAME", value_parser = parse_preset)]
    preset: Option<Preset>,
    /// f2fs: directories can ignore case (chattr +F). ENCODING is utf8 or utf8:strict.
    #[arg(short = 'C', long, value_name = "ENCODING")]
    pub(super) casefold: Option<String>,
}

/// Features that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preset {
    /// Those of Android.
    Android,
}

pub(super) fn parse_preset(name: &str) -> Result<Preset, String> {
    match name {
        "android" => Ok(Preset::Android),
        _ => Err("there is android".into()),
    }
}

impl Preset {
    /// The names of its features.
    pub(super) fn features(self) -> impl Iterator<Item = String> {
        match self {
            Self::Android => ANDROID.into_iter().map(str::to_owned),
        }
    }
}

impl F2fsFeatures {
    /// The names of the preset's features.
    ///
    /// # Errors
    /// The format has no presets.
    pub(super) fn preset(&self, format: Format) -> Outcome<Vec<String>> {
        match self.preset {
            Some(_) if format != Format::F2fs => {
                Err(Failure::usage("--preset is an option of f2fs: leave it out, or give -t f2fs"))
            }
            preset => Ok(preset.into_iter().flat_map(Preset::features).collect()),
        }
    }

    /// True if a preset is asked for.
    pub(super) fn has_preset(&self) -> bool {
        self.preset.is_some()
    }
}
