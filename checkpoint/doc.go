// Package checkpoint commits input positions, state and output together.
package checkpoint
