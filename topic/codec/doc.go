// Package codec turns typed keys and values into bytes and back.
package codec
