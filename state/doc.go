// Package state keeps keyed state: an overlay in the task's memory over a store that follows the changelog.
package state
