// Package image writes container images of one layer from static programs, without a registry or a daemon.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// Image is a container image.
type Image struct {
	Name       string   // with its tag, as in pods
	Programs   []string // static programs of this host; each is in the image's root, by its base name
	Entrypoint []string // the first one is a path in the image
}

// descriptor names a blob, as in the OCI image specification.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive collects the blobs of an image.
type archive struct {
	out *tar.Writer
	err error
}

// Write writes the image as an archive in the OCI image layout, which ctr images import reads.
func Write(w io.Writer, i Image) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	a := &archive{out: tar.NewWriter(w)}
	const oci = "application/vnd.oci.image."
	l := a.blob(oci+"layer.v1.tar", layer)
	config := a.json(oci+"config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Env": []string{"PATH=/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{l.Digest}},
	})
	manifest := a.json(oci+"manifest.v1+json", map[string]any{"schemaVersion": 2,
		"mediaType": oci + "manifest.v1+json", "config": config, "layers": []descriptor{l}})
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name}
	a.file("oci-layout", a.encode(map[string]string{"imageLayoutVersion": "1.0.0"}))
	a.file("index.json", a.encode(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}}))
	if a.err == nil {
		a.err = a.out.Close()
	}
	return a.err
}

// layer returns the image's only layer: an archive of its programs.
func (i Image) layer() ([]byte, error) {
	var layer bytes.Buffer
	a := &archive{out: tar.NewWriter(&layer)}
	for _, dir := range []string{"etc/", "tmp/"} { // the kubelet writes hosts and resolv.conf there
		a.header(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o1777})
	}
	for _, program := range i.Programs {
		if err := static(program); err != nil {
			return nil, err
		}
		data, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		a.header(tar.Header{Name: filepath.Base(program), Mode: 0o755, Size: int64(len(data))})
		a.write(data)
	}
	if a.err == nil {
		a.err = a.out.Close()
	}
	return layer.Bytes(), a.err
}

// static checks that a program runs in an image without libraries.
func static(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s: expected a static program: CGO_ENABLED=0 go build", program)
		}
	}
	return nil
}

func (a *archive) header(h tar.Header) {
	if a.err == nil {
		a.err = a.out.WriteHeader(&h)
	}
}

func (a *archive) write(data []byte) {
	if a.err == nil {
		_, a.err = a.out.Write(data)
	}
}

func (a *archive) file(name string, data []byte) {
	a.header(tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))})
	a.write(data)
}

func (a *archive) blob(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	a.file("blobs/sha256/"+sum, data)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

func (a *archive) json(mediaType string, value any) descriptor {
	return a.blob(mediaType, a.encode(value))
}

func (a *archive) encode(value any) []byte {
	data, err := json.Marshal(value)
	if a.err == nil {
		a.err = err
	}
	return data
}
