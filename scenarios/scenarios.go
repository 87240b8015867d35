// Package scenarios holds the scenarios that come with the program.
package scenarios

import "embed"

// Files are the scenarios, one YAML file each.
//
//go:embed *.yaml
var Files embed.FS
