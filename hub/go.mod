module isolane.dev/isolane/hub

go 1.26.8

require (
	github.com/google/go-cmp v0.7.0
	isolane.dev/isolane v0.0.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/cilium/ebpf v0.22.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/ulikunitz/xz v0.5.17 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.49.0 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)

replace isolane.dev/isolane => ..
