//! Renders a result as text for a terminal and as a page for a browser.

mod chart;
mod figure;
mod markup;
mod page;
mod table;

pub use page::html;
pub use table::text;

#[cfg(test)]
mod tests;
