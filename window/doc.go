// Package window holds pure functions of event time: window assignment and watermarks.
package window
