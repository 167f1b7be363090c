//! Placeholder until the ranked locks land.
