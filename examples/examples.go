// Package examples holds files with lanes to begin from. Tests plan each of them.
package examples

import "embed"

// Files are the examples, one YAML file each; web.yaml is the one to begin with.
//
//go:embed *.yaml
var Files embed.FS
