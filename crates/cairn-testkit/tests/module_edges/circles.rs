//! Strongly connected components of a graph of files, by Tarjan's algorithm.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Edges;

/// The components of more than one file.
pub fn circles(edges: &Edges) -> Vec<BTreeSet<PathBuf>> {
    let mut search =
        Search { edges, visited: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for file in edges.keys() {
        if !search.visited.contains_key(file.as_path()) {
            search.visit(file);
        }
    }
    search.found
}

struct Search<'a> {
    edges: &'a Edges,
    /// The order of the first visit, from 0.
    visited: BTreeMap<&'a Path, usize>,
    stack: Vec<&'a Path>,
    found: Vec<BTreeSet<PathBuf>>,
}

impl<'a> Search<'a> {
    /// Returns the earliest visited file that `file` reaches and that is still on the stack.
    fn visit(&mut self, file: &'a Path) -> usize {
        let place = self.visited.len();
        self.visited.insert(file, place);
        self.stack.push(file);
        let mut lowest = place;
        for next in self.edges.get(file).into_iter().flat_map(BTreeMap::keys) {
            match self.visited.get(next.as_path()) {
                None => lowest = lowest.min(self.visit(next)),
                Some(place) if self.stack.contains(&next.as_path()) => lowest = lowest.min(*place),
                Some(_) => {}
            }
        }
        if lowest == place {
            let start = self.stack.iter().position(|other| *other == file).unwrap();
            let component: BTreeSet<_> = self.stack.drain(start..).map(Path::to_owned).collect();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        lowest
    }
}
