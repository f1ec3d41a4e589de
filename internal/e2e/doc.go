// Package e2e has no code of its own: its tests run whole topologies over real
// event data, from a file through a node to an output topic, and compare every
// window with the known answer. testdata/README.md says where the data comes from.
package e2e
