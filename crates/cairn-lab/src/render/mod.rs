//! Renders results as text for a terminal and as a page for a browser.

mod chart;
mod drawing;
mod figure;
mod lines;
mod markup;
mod page;
mod table;

pub use page::html;
pub use table::{changes, text};

#[cfg(test)]
mod tests;
