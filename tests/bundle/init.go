// Makes a bundle from a native template, as `databricks bundle init` does with every question answered.
//
// go run init.go TEMPLATE ANSWERS.json OUTPUT
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"
)

type project struct {
	folder  string
	answers map[string]string
	skipped []string
}

// text fills a template in; skip patterns are relative to the folder that the template lies in.
func (p *project) text(written, folder string) (string, error) {
	functions := template.FuncMap{
		"lower": strings.ToLower,
		// What scripts/render.py has for it.
		"bundle_uuid": func() string { return "6f3a0d4e-52c1-4b0b-9d5e-8a1f2c7b9e60" },
		"fail": func(format string, values ...any) (string, error) {
			return "", fmt.Errorf(format, values...)
		},
		"skip": func(pattern string) (string, error) {
			filled, err := p.text(path.Join(folder, pattern), folder)
			p.skipped = append(p.skipped, filled)
			return "", err
		},
	}
	parsed, err := template.New("").Funcs(functions).Option("missingkey=error").Parse(written)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, p.answers)
	return out.String(), err
}

func (p *project) skips(name string) bool {
	for _, pattern := range p.skipped {
		if matched, err := path.Match(pattern, name); err != nil || matched {
			return true
		}
	}
	return false
}

// read fills in every file below the template's folder, a folder's own files before its subfolders'.
func (p *project) read() (map[string][]byte, error) {
	made := map[string][]byte{}
	for folders := []string{"."}; len(folders) > 0; folders = folders[1:] {
		name, err := p.text(folders[0], ".")
		if err != nil {
			return nil, err
		}
		if p.skips(name) {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(p.folder, folders[0]))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			there := path.Join(folders[0], entry.Name())
			if entry.IsDir() {
				folders = append(folders, there)
				continue
			}
			content, err := os.ReadFile(filepath.Join(p.folder, there))
			if err != nil {
				return nil, err
			}
			name, err := p.text(there, ".")
			if err != nil {
				return nil, err
			}
			if strings.HasSuffix(name, ".tmpl") {
				filled, err := p.text(string(content), folders[0])
				if err != nil {
					return nil, err
				}
				name, content = strings.TrimSuffix(name, ".tmpl"), []byte(filled)
			}
			made[name] = content
		}
	}
	return made, nil
}

func run(folder, answers, output string) error {
	p := project{folder: filepath.Join(folder, "template")}
	written, err := os.ReadFile(answers)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(written, &p.answers); err != nil {
		return err
	}
	made, err := p.read()
	if err != nil {
		return err
	}
	for name, content := range made {
		if p.skips(name) {
			continue
		}
		there := filepath.Join(output, name)
		if err := os.MkdirAll(filepath.Dir(there), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(there, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}
